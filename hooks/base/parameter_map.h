// Finds the parameter to which memory belongs. It compares storage and byte range, because flat
// buckets and tied weights share storages, and C++ linear layers pass a transposed view.
//
// Thread-safety: refresh() on the training thread while no operator runs; find() from any thread.
#pragma once

#include <ttrace/named_tensor.h>

#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ttrace {

using ParameterIndices = c10::SmallVector<int, 4>;

struct Parameter {
  std::string path;    // "decoder.final_layernorm.weight"
  std::string module;  // "decoder.final_layernorm"; empty for a parameter of the root
  at::Tensor tensor;
};

class ParameterMap {
 public:
  explicit ParameterMap(std::vector<NamedTensor> parameters);

  [[nodiscard]] const std::vector<Parameter>& all() const { return parameters_; }

  // Null if no parameter has that path.
  [[nodiscard]] const Parameter* named(const std::string& path) const;

  // Looks at the storages anew: an optimizer may have moved parameters into a flat buffer.
  void refresh();

  // Appends the parameters whose bytes contain the tensor's bytes; several where weights are tied.
  // Returns whether there is one.
  bool find(const at::Tensor& tensor, ParameterIndices& indices) const;
  // Whether a parameter lies in the tensor's storage, within its range.
  [[nodiscard]] bool is_parameter_memory(const at::Tensor& tensor) const;

 private:
  struct Range {
    std::int64_t begin = 0;  // bytes within the storage
    std::int64_t end = 0;
    int index = 0;
  };
  // Those of the tensor's storage; none where it has no memory.
  [[nodiscard]] std::span<const Range> ranges_at(const at::Tensor& tensor) const;

  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, std::size_t> by_path_;
  std::unordered_map<const void*, std::vector<Range>> by_storage_;
};

}  // namespace ttrace
