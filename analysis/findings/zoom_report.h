// What a zoom found: the first operator inside a module that round-off does not explain.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/findings/diagnosis.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// An operator of one of the programs.
struct NamedOperator {
  std::string name;    // "aten::mm"
  std::string module;  // that called it; empty: code outside of modules
  std::string source;  // "model.py:88", or empty
  bool backward = false;

  bool operator==(const NamedOperator&) const = default;
};

// How the named operator is wrong.
enum class OperatorFault {
  kResult,           // both programs run it, and it returns something else
  kOnlyInCandidate,  // an extra operator
  kOnlyInReference,  // a missing one
  kCommunication,    // a collective returns what its inputs do not add up to
};

// "result", "only_in_candidate"
[[nodiscard]] std::string_view name_of(OperatorFault fault);

struct ZoomReport {
  std::string target;  // "s0/m0/layers.0.attention"
  std::string folder;  // of the zoom's passes
  std::size_t reference_operators = 0;
  std::size_t candidate_operators = 0;  // of the rank with most of them
  std::size_t compared = 0;             // results that both sides have
  std::optional<NamedOperator> first;
  OperatorFault fault = OperatorFault::kResult;
  std::string id;  // of the first result that differs, in the reference's names; empty: none does
  std::optional<NamedOperator> result;        // the operator that returned it
  std::vector<std::string> what;              // what is wrong with that result
  std::optional<Diagnosis> diagnosis;         // of it
  std::vector<NamedOperator> clean_inputs;    // operators that it reads from, with right results
  std::vector<NamedOperator> wrong_inputs;    // the same, with wrong ones
  bool reads_outside = false;                 // also parameters, or inputs of the module
  std::vector<NamedOperator> only_reference;  // operators that only one side runs
  std::vector<NamedOperator> only_candidate;
  std::string problem;  // why nothing is named; else empty
};

}  // namespace ttrace
