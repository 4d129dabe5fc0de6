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
#include <vector>

namespace ttrace {

// A table of what diverged: id, error, bound, error / bound, and a few words on the cause.
struct FindingTable {
  std::vector<std::vector<std::string>>
      rows;                  // "-" where there is no number, as of what is missing
  std::size_t left_out = 0;  // beyond `max_rows`
};

// Of the findings or, if `allowed`, of what would be one if the user did not allow it to differ.
[[nodiscard]] FindingTable findings_of(const Report& report, bool allowed, std::size_t max_rows);

// A few words: "out of bound", "factor 0.5000", "rows 17:18 of dimension 0".
[[nodiscard]] std::string short_cause(const TensorVerdict& tensor);

// What a tensor's error is relative to: "the reference's" norm, or "the first forward's".
[[nodiscard]] std::string_view whose_norm(const TensorVerdict& tensor);

// "missing_reduction" as "missing reduction"
[[nodiscard]] std::string spaced(std::string_view name);

// "0.175 from 5 noise passes x 2 (default limit); ...". Requires: a comparison.
[[nodiscard]] std::string bound_text(const TensorVerdict& tensor);

// "missing reduction: the sum over tp is missing; ..."
[[nodiscard]] std::string cause_text(Signature signature, std::string_view sentence);

// A line "cause: ...", and a line "or: ..." if another cause is nearly as likely.
void write_diagnosis(std::ostream& out, std::string_view indent, const Diagnosis& diagnosis);

// "bf16", or "parameters f32, activations bf16".
[[nodiscard]] std::string precision_text(const Side& side);

// The verdict in a few words, in capitals, and how much was judged.
[[nodiscard]] std::string headline(const Report& report);

// Why the verdict does not cover everything; empty where it does.
[[nodiscard]] std::string reservation(const Report& report);

}  // namespace ttrace
