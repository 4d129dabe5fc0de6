#include "hooks/base/parameter_map.h"

#include "hooks/base/tensor_access.h"

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
bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.layout() == at::kStrided &&
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

bool ParameterMap::find(const at::Tensor& tensor, ParameterIndices& indices) const {
  if (!has_memory(tensor)) {
    return false;
  }
  const auto found = by_storage_.find(storage_of(tensor));
  if (found == by_storage_.end()) {
    return false;
  }
  const auto [begin, end] = byte_range(tensor);
  bool any = false;
  for (const Range& range : found->second) {
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
  if (!has_memory(tensor)) {
    return false;
  }
  const auto found = by_storage_.find(storage_of(tensor));
  if (found == by_storage_.end()) {
    return false;
  }
  const auto [begin, end] = byte_range(tensor);
  for (const Range& range : found->second) {
    if (begin < range.end && range.begin < end) {
      return true;
    }
  }
  return false;
}

}  // namespace ttrace
