#include "hooks/device/cuda_library.h"

#include "hooks/base/cuda_functions.h"
#include "hooks/device/cuda/functions.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <c10/core/Allocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Of the current device.
std::optional<void*> current_stream() {
  const c10::impl::VirtualGuardImpl guard(c10::DeviceType::CUDA);
  return current_cuda_stream(guard.getDevice().index());
}

struct Functions {
  ttrace_cuda_perturb_function perturb = nullptr;
  ttrace_cuda_digest_function digest = nullptr;
  ttrace_cuda_compare_function compare = nullptr;
  ttrace_cuda_sum_slices_function sum_slices = nullptr;
};

void require_success(const char* failure, const char* action) {
  TTRACE_CHECK(failure == nullptr, UsageError, "cannot ", action, " on the GPU: ", failure);
}

class CudaKernels : public DeviceKernels {
 public:
  explicit CudaKernels(const Functions& functions) : functions_(functions) {}

  void perturb(ElementType type,
               NoiseClass noise,
               std::uint64_t seed,
               std::int64_t count,
               void* values) const override {
    require_success(functions_.perturb(current_stream().value(), type, noise, seed, count, values),
                    "perturb a tensor");
  }

  [[nodiscard]] Digest digest(const void* data, std::int64_t bytes) const override {
    const c10::DataPtr scratch = allocate(sizeof(Digest));
    Digest result{};
    require_success(
        functions_.digest(current_stream().value(), data, bytes, scratch.get(), &result),
        "digest a tensor");
    return result;
  }

  [[nodiscard]] Statistics compare(const ElementPairs& pairs) const override {
    std::vector<GroupFigures> groups(static_cast<std::size_t>(groups_of(pairs.count)));
    const c10::DataPtr scratch = allocate(groups.size() * sizeof(GroupFigures));
    require_success(functions_.compare(current_stream().value(),
                                       &pairs,
                                       static_cast<GroupFigures*>(scratch.get()),
                                       groups.data()),
                    "compare tensors");
    return statistics_of(groups, pairs.count);
  }

  [[nodiscard]] Slices sum_slices(std::span<const std::int64_t> shape,
                                  const ElementPairs& pairs) const override {
    const SliceRows how = slice_rows(shape);
    const RowPairs rows{pairs, how.row};
    std::vector<ChunkSums> chunks(static_cast<std::size_t>(rows.chunks()));
    std::vector<double> columns(how.columns ? static_cast<std::size_t>(how.row) : 0);
    const c10::DataPtr scratch =
        allocate(chunks.size() * sizeof(ChunkSums) + columns.size() * sizeof(double));
    require_success(functions_.sum_slices(current_stream().value(),
                                          &rows,
                                          scratch.get(),
                                          chunks.data(),
                                          columns.empty() ? nullptr : columns.data()),
                    "sum slices");
    return join_chunks(shape, chunks, columns);
  }

 private:
  // Of the current device, for its current stream.
  static c10::DataPtr allocate(std::size_t bytes) {
    return c10::GetAllocator(c10::DeviceType::CUDA)->allocate(bytes);
  }

  const Functions functions_;
};

// LIBTTRACE_CUDA, else the file next to the library that this function is in.
std::string library_file() {
  if (const char* const named = std::getenv("LIBTTRACE_CUDA"); named != nullptr && *named != '\0') {
    return named;
  }
  Dl_info here{};
  const bool known = dladdr(reinterpret_cast<const void*>(&open_cuda_library), &here) != 0;
  const std::filesystem::path own = known && here.dli_fname != nullptr ? here.dli_fname : "";
  return (own.parent_path() / "libttrace_cuda.so").string();
}

std::unique_ptr<const DeviceKernels> without(const std::string& reason) {
  log(LogLevel::kWarning,
      reason + ", so noise and comparisons of CUDA tensors run on the host, which is slow");
  return nullptr;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<const DeviceKernels> open_cuda_library() {
  const std::string file = library_file();
  // It stays open for as long as the process lives.
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return without("the library of CUDA kernels cannot be opened (" + std::string(dlerror()) +
                   "; LIBTTRACE_CUDA names another file)");
  }
  ttrace_cuda_version_function version = nullptr;
  Functions functions;
  const bool complete = find(library, "ttrace_cuda_version", version) &&
                        version() == TTRACE_CUDA_VERSION &&
                        find(library, "ttrace_cuda_perturb", functions.perturb) &&
                        find(library, "ttrace_cuda_digest", functions.digest) &&
                        find(library, "ttrace_cuda_compare", functions.compare) &&
                        find(library, "ttrace_cuda_sum_slices", functions.sum_slices);
  if (!complete) {
    return without(file + " belongs to another version of TTrace");
  }
  if (!current_stream()) {
    return without("this torch does not report CUDA's current stream");
  }
  return std::make_unique<CudaKernels>(functions);
}

}  // namespace ttrace
