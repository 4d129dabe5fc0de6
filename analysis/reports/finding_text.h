// The text about one finding in reports for people.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/diagnosis.h"
#include "analysis/findings/report.h"

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// The numbers that decided; "-" if there are none, as of a tensor that is missing.
struct FindingNumbers {
  std::string error = "-";
  std::string bound = "-";
  std::string ratio = "-";  // error / bound
};

[[nodiscard]] FindingNumbers numbers_of(const TensorVerdict& tensor);

// A few words: "out of bound", "factor 0.5000", "rows 17:18 of dimension 0".
[[nodiscard]] std::string short_cause(const TensorVerdict& tensor);

// What a tensor's error is relative to: "the reference's" norm, or "the first forward's".
[[nodiscard]] std::string_view whose_norm(const TensorVerdict& tensor);

// "missing_reduction" as "missing reduction"
[[nodiscard]] std::string spaced(std::string_view name);

// A line "probable cause: ...", and a line "or: ..." if another cause is nearly as likely. Writes
// nothing without a diagnosis.
void write_diagnosis(std::ostream& out,
                     const char* indent,
                     const std::optional<Diagnosis>& diagnosis);

// A line for each of what is wrong: the first one begins with `first`, the others with `indent` and
// "also: ". At most three, and how many more there are.
void write_causes(std::ostream& out,
                  const std::string& first,
                  const char* indent,
                  const TensorVerdict& tensor);

// "bf16", or "parameters f32, activations bf16".
[[nodiscard]] std::string precision_text(const Side& side);

// The verdict in a few words, in capitals, and how much was judged.
[[nodiscard]] std::string headline(const Report& report);

// Why the verdict does not cover everything; empty where it does.
[[nodiscard]] std::string reservation(const Report& report);

// Why a tensor is not judged. Requires: Status::kNotJudged.
[[nodiscard]] std::string_view why_not_judged(const TensorVerdict& tensor);

// One line for the finding report.tensors[tensor]: the beginning of what the deciding check says,
// the numbers, the ranks, and the name of its probable cause.
[[nodiscard]] std::string finding_line(const Report& report, std::size_t tensor);

// Indented lines: what it is, its probable cause, error and bound, the ranks concerned.
void write_finding(std::ostream& out,
                   const TensorVerdict& tensor,
                   const std::optional<Diagnosis>& diagnosis);

}  // namespace ttrace
