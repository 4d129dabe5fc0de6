#include "hooks/base/parameter_map.h"

#include "hooks/base/tensor_access.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// First and last-plus-one byte that a tensor touches in its storage.
std::pair<std::int64_t, std::int64_t> byte_range(const at::Tensor& tensor) {
  const auto item = static_cast<std::int64_t>(tensor.itemsize());
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    last += (tensor.size(dim) - 1) * tensor.stride(dim);
  }
  return {tensor.storage_offset() * item, (last + 1) * item};
}

// The stand-ins by which a compiler traces a program have storages, but their sizes may be symbols.
// Wrappers of other tensors may have sizes that only their own Python code knows.
bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && !is_wrapper(tensor) && tensor.has_storage() &&
         tensor.layout() == at::kStrided &&
         !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides() && tensor.numel() > 0;
}

}  // namespace

ParameterMap::ParameterMap(std::vector<NamedTensor> parameters) {
  for (NamedTensor& item : parameters) {
    const std::size_t dot = item.path.rfind('.');
    std::string module = dot == std::string::npos ? std::string() : item.path.substr(0, dot);
    by_path_.emplace(item.path, parameters_.size());
    parameters_.push_back({std::move(item.path), std::move(module), std::move(item.tensor)});
  }
  refresh();
}

const Parameter* ParameterMap::named(const std::string& path) const {
  const auto found = by_path_.find(path);
  return found == by_path_.end() ? nullptr : &parameters_[found->second];
}

void ParameterMap::refresh() {
  by_storage_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    if (has_memory(tensor)) {
      const auto [begin, end] = byte_range(tensor);
      by_storage_[storage_of(tensor)].push_back({begin, end, static_cast<int>(i)});
    }
  }
}

std::span<const ParameterMap::Range> ParameterMap::ranges_at(const at::Tensor& tensor) const {
  const auto found = has_memory(tensor) ? by_storage_.find(storage_of(tensor)) : by_storage_.end();
  return found == by_storage_.end() ? std::span<const Range>()
                                    : std::span<const Range>(found->second);
}

bool ParameterMap::find(const at::Tensor& tensor, ParameterIndices& indices) const {
  const std::span<const Range> ranges = ranges_at(tensor);
  if (ranges.empty()) {
    return false;
  }
  const auto [begin, end] = byte_range(tensor);
  bool any = false;
  for (const Range& range : ranges) {
    // A storage given up since refresh() may lie where another one is now.
    const at::Tensor& parameter = parameters_[static_cast<std::size_t>(range.index)].tensor;
    if (range.begin <= begin && end <= range.end && storage_of(parameter) == storage_of(tensor)) {
      indices.push_back(range.index);
      any = true;
    }
  }
  return any;
}

bool ParameterMap::is_parameter_memory(const at::Tensor& tensor) const {
  const std::span<const Range> ranges = ranges_at(tensor);
  if (ranges.empty()) {
    return false;
  }
  const auto [begin, end] = byte_range(tensor);
  return std::any_of(ranges.begin(), ranges.end(), [begin = begin, end = end](const Range& range) {
    return begin < range.end && range.begin < end;
  });
}

}  // namespace ttrace
