// The experts that a run chose for its tokens: records of kind `routing`, slot 0.
//
// Thread-safety: values and free functions; read_routing touches no file that is not open already.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr int kChoicesSlot = 0;  // [..., k]: numbers of the chosen experts, best first
inline constexpr int kMarginsSlot = 1;  // [...]: score of the k-th less that of the next

// Whether a record holds choices of experts.
[[nodiscard]] inline bool is_choices(const TensorId& id) {
  return id.kind == Kind::kRouting && id.slot == kChoicesSlot;
}

// Whole logical choices of one router in one micro-batch, row-major.
struct Choices {
  std::vector<std::int64_t> shape;  // [..., k]
  std::vector<std::int64_t> experts;
};

// The choices of all routers, by their id. Recomputed forwards are left out, because they must
// repeat the first one.
using Routing = std::map<TensorId, Choices>;

// Throws UsageError that names the id where the ranks' parts do not make a whole.
[[nodiscard]] Routing read_routing(const Trace& trace);

}  // namespace ttrace
