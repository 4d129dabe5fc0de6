// What a report says, as a table of facts. Every format prints its selection of them: the text,
// Markdown, JUnit, SARIF, and JSON, from which the page takes them. A new fact is one row of
// facts.cpp, and no format computes one of its own.
//
// Thread-safety: free functions that only read.
#pragma once

#include "analysis/findings/report.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// How much a reader has to know before he asks for it.
enum class Depth : std::uint8_t {
  kAnswer,    // what is wrong, why, and what to do: a line each
  kEvidence,  // why one should believe it
  kDetail,    // the numbers behind it
};

struct Fact {
  std::string_view key;    // for programs, and the same for ever: "cause"
  std::string_view label;  // for people: "to do"
  std::string text;        // in one line, without a full stop
  Depth depth = Depth::kAnswer;
  std::optional<double> number = {};   // that the text rounds
  std::optional<CodePlace> link = {};  // the line of the program that it speaks of
};

// "layers.0.wo: output, step 0, micro-batch 1"
[[nodiscard]] std::string place_text(const TensorId& id);

// About report.tensors[tensor], in the order of reading. The first one is always `where`.
[[nodiscard]] std::vector<Fact> facts_of_finding(const Report& report, std::size_t tensor);

// About the comparison as a whole: what surrounds the first divergence, the two runs, how much was
// compared, how small an error it would have seen, and the limits.
[[nodiscard]] std::vector<Fact> facts_of_run(const Report& report);

// One line for report.tensors[tensor]: why it is one, its size, the ranks, and the cause.
[[nodiscard]] std::string finding_line(const Report& report, std::size_t tensor);

// A line for each: "LABEL: TEXT".
[[nodiscard]] std::string lines_of(const std::vector<Fact>& facts);

}  // namespace ttrace
