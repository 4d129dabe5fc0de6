#include "hooks/base/simulated_parts.h"

#include "hooks/base/tensor_access.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, at::UndefinedTensorImpl>;

struct Entry {
  WeakTensor first;
  std::vector<at::Tensor> others;
};

// Of the process, because at most one session is attached. It outlives every static object.
struct Declared {
  std::mutex mutex;
  std::unordered_map<const c10::TensorImpl*, Entry> by_first;
};

Declared& declared() {
  static auto* const instance = new Declared;
  return *instance;
}

// What the operator below was called with, while unwrapped_parts() runs.
thread_local std::vector<at::Tensor>* collected = nullptr;

void collect_part(const at::Tensor& part) {
  if (collected != nullptr) {
    collected->push_back(part);
  }
}

// A wrapper of parts calls an operator once for every rank, with that rank's part: unless its
// kernel is one that torch takes apart before wrappers see it.
TORCH_LIBRARY_FRAGMENT(ttrace, library) {
  library.def("part_of_rank(Tensor part) -> ()");
  library.impl("part_of_rank", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(collect_part));
}

}  // namespace

void declare_parts(std::vector<at::Tensor> parts) {
  if (parts.empty()) {
    return;
  }
  const at::Tensor first = parts.front();
  parts.erase(parts.begin());
  std::vector<Entry> gone;  // given up without the lock
  Declared& all = declared();
  const std::lock_guard lock(all.mutex);
  for (auto entry = all.by_first.begin(); entry != all.by_first.end();) {
    const bool is_gone = entry->second.first.expired();
    if (is_gone) {
      gone.push_back(std::move(entry->second));
    }
    entry = is_gone ? all.by_first.erase(entry) : std::next(entry);
  }
  all.by_first.insert_or_assign(first.unsafeGetTensorImpl(),
                                Entry{WeakTensor(first.getIntrusivePtr()), std::move(parts)});
}

std::vector<at::Tensor> other_parts(const at::Tensor& first) {
  Declared& all = declared();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_first.find(first.unsafeGetTensorImpl());
  const bool is_known = found != all.by_first.end() && !found->second.first.expired();
  return is_known ? found->second.others : std::vector<at::Tensor>();
}

std::vector<at::Tensor> unwrapped_parts(const at::Tensor& tensor) {
  if (!is_wrapper(tensor)) {
    return {tensor};
  }
  static const auto call = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("ttrace::part_of_rank", "")
                               .typed<void(const at::Tensor&)>();
  const at::RecordFunctionGuard unseen(false);
  std::vector<at::Tensor> parts;
  auto* const before = std::exchange(collected, &parts);
  try {
    call.call(tensor);
  } catch (...) {
    collected = before;
    throw;
  }
  collected = before;
  return parts;
}

}  // namespace ttrace
