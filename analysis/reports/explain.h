// All that a report knows of one tensor, in the order in which a person asks: what the verdict is,
// every bound that applies and which of them ruled, the arithmetic with its numbers, where the
// error may have come from, and how small an error each check would have seen.
//
// Nothing is judged here: it takes apart what diff() found. Formulas: bounds.h, operator_check.h,
// slices.h.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// A tensor that comes before in the reference's order.
struct Upstream {
  std::string id;
  Status status = Status::kWithin;
  double share = 0.0;    // of its own nearest bound
  std::string relation;  // "first divergence, wrong"; "nearest to its bound", "just before"
};

struct Explanation {
  TensorVerdict tensor;
  bool is_first_divergence = false;
  std::string sentence;                // verdict and status
  std::vector<Check> checks;           // of the tensor, those that say something
  std::optional<std::size_t> ruling;   // which of them the status rests on: TensorVerdict::ruling()
  std::optional<Diagnosis> diagnosis;  // of a root; see roots.h
  std::string where_to_look;           // of the first divergence alone
  std::vector<Upstream> upstream;
  std::size_t wrong_before = 0;  // findings before it, of all micro-batches
  std::size_t before = 0;        // tensors before it
};

// Explains report.tensors[index].
[[nodiscard]] Explanation explain(const Report& report, std::size_t index);

// For people.
void write_text(std::ostream& out, const Explanation& explanation);

// One object: that of the tensor in the report's JSON, and the fields above.
void write_json(std::ostream& out, const Explanation& explanation);

// 0 within its bounds, 1 a finding, 2 not judged.
[[nodiscard]] int exit_code(const Explanation& explanation);

}  // namespace ttrace
