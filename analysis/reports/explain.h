// All that a report knows of one tensor, in the order in which a person asks: what the verdict is,
// every bound that applies and which of them ruled, the arithmetic with its numbers, where the
// error may have come from, and how small an error would have been seen.
//
// Nothing is judged here: it takes apart what diff() found. Formulas: bounds.h, operator_check.h,
// slices.h.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// In the order in which they decide a verdict.
enum class CheckKind : std::uint8_t {
  kStructure,       // T0: what no rounding touches: presence, shapes, copies, NaN
  kExact,           // T0: equal values
  kOperator,        // T1: R of the whole tensor
  kOperatorSlice,   // T1: its worst part
  kOperatorFactor,  // T1: a factor
  kTolerance,       // T2: what the user asked for, in place of the next three
  kFlips,           // T2: choices of experts
  kWhole,           // T2: the error of the whole tensor
  kSlice,           // T2: its worst part
  kFactor,          // T2: a factor
  kGolden,          // rho, neither too large nor too small
};

// "structure", "operator_slice".
[[nodiscard]] std::string_view name_of(CheckKind kind);

// One bound that applies to the tensor. Of kStructure there are no numbers.
struct BoundCheck {
  CheckKind kind = CheckKind::kStructure;
  Tier tier = Tier::kT0;
  double value = 0.0;  // what is held against the bound
  double bound = 0.0;
  double share = 0.0;  // |value| / bound; 0 where the value is 0, Inf where only the bound is
  bool holds = true;
  bool rules = false;      // decided the verdict, or is the nearest to its bound
  std::string where;       // of a part
  std::vector<int> ranks;  // candidate's, that hold the part
  std::string source;      // where the bound came from
};

// One line of arithmetic: what = formula = numbers = value. `numbers` is empty where the report has
// not the numbers that go in.
struct ArithmeticStep {
  CheckKind kind = CheckKind::kWhole;  // whose bound it leads to
  std::string what;
  std::string formula;
  std::string numbers;
  double value = 0.0;
};

// An error of this size would be beyond a bound, relative to the norm of the whole tensor.
struct SmallestSeen {
  CheckKind kind = CheckKind::kWhole;
  double relative = 0.0;
  std::string where;  // of a part: an error that lies in it alone
};

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
  std::string sentence;  // verdict and status
  std::vector<BoundCheck> checks;
  std::vector<ArithmeticStep> arithmetic;
  std::optional<Diagnosis> diagnosis;  // of a root; see roots.h
  std::string where_to_look;           // of the first divergence alone
  std::vector<Upstream> upstream;
  std::size_t wrong_before = 0;  // findings before it, of all micro-batches
  std::size_t before = 0;        // tensors before it
  std::vector<SmallestSeen> smallest_seen;
};

// Every bound that applies to the tensor, in the order in which they decide; none where it was not
// judged.
[[nodiscard]] std::vector<BoundCheck> checks_of(const TensorVerdict& tensor);

// Of report.tensors[index].
[[nodiscard]] Explanation explain(const Report& report, std::size_t index);

// For people.
void write_text(std::ostream& out, const Explanation& explanation);

// One object: that of the tensor in the report's JSON, and the fields above.
void write_json(std::ostream& out, const Explanation& explanation);

// 0 within its bounds, 1 a finding, 2 not judged.
[[nodiscard]] int exit_code(const Explanation& explanation);

}  // namespace ttrace
