#include "analysis/cli/run/merged_writer.h"

#include "trace/file/hdf5_tensor.h"
#include "trace/file/trace_schema.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int32_t kMergedVersion = 1;
constexpr const char* kMergedAttribute = "ttrace_merged";
constexpr const char* kTypeAttribute = "ttrace_dtype";

}  // namespace

struct MergedWriter::Impl {
  explicit Impl(std::string final_name)
      : file(std::move(final_name)), output(file, kOwnDatasetBytes, kDatasetAlignment) {}

  // Ids are paths: step, micro-batch, kind and module become groups.
  void create_groups(const std::string& id) {
    for (std::size_t slash = id.find('/'); slash != std::string::npos;
         slash = id.find('/', slash + 1)) {
      const std::string name = id.substr(0, slash);
      if (groups.insert(name).second) {
        const Hdf5Id group(
            H5Gcreate2(output.id(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
            H5Gclose,
            output.path(),
            "create the group '" + name + "'");
      }
    }
  }

  std::string file;
  Hdf5Output output;
  std::set<std::string> groups;
  bool committed = false;
};

MergedWriter::MergedWriter(std::string file, const Manifest& manifest) {
  const QuietHdf5 quiet;
  std::error_code error;
  TTRACE_CHECK(!std::filesystem::exists(file, error),
               FormatError,
               fmt::format("{} exists already; choose another file for -o, or remove it", file));
  impl_ = std::make_unique<Impl>(std::move(file));
  impl_->output.write_attribute(kMergedAttribute, kMergedVersion);
  impl_->output.write_attribute("pass", manifest.pass);
  impl_->output.write_attribute("precision", manifest.precision);
  impl_->output.write_attribute("world_size", std::int32_t{manifest.world_size});
}

MergedWriter::~MergedWriter() {
  const QuietHdf5 quiet;
  if (impl_ && !impl_->committed) {
    const std::string temporary = impl_->output.path();
    impl_.reset();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  }
}

void MergedWriter::append(const TensorId& id, const MergeResult& tensor) {
  const QuietHdf5 quiet;
  const std::string name = to_string(id);
  TTRACE_CHECK(
      tensor.has_tensor(), InternalError, fmt::format("{} has no merged tensor to write", name));
  Impl& impl = *impl_;
  impl.create_groups(name);
  write_dataset(impl.output,
                name,
                hdf5_type(tensor.type, impl.output.path()),
                {tensor.shape.begin(), tensor.shape.end()},
                tensor.bytes);
  impl.output.write_attribute(kTypeAttribute, std::string(name_of(tensor.type)), name.c_str());
  impl.output.check_written();
}

void MergedWriter::commit() {
  const QuietHdf5 quiet;
  impl_->output.finish();
  impl_->committed = true;
}

}  // namespace ttrace
