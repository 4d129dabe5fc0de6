// The operators that one rank ran inside the modules of a zoom, with what a comparison of two such
// lists looks at.
//
// Thread-safety: values; read_operators() is a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/merge/operator_call.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {

struct ListedOperator {
  OperatorCall call;
  std::string base;                 // of its name: "add" of "aten::add_"
  std::vector<std::int64_t> shape;  // logical, of its first result; empty where it has none
  double size = 0.0;                // root mean square of that result; 0 where it has none

  [[nodiscard]] bool has_result() const { return !call.results.empty(); }
};

struct OperatorSequence {
  int rank = 0;
  std::vector<ListedOperator> operators;
};

// The lists of all ranks that ran an operator there, ascending. Throws FormatError for a damaged
// list.
[[nodiscard]] std::vector<OperatorSequence> read_operators(const Trace& trace);

// The operators that one reads from, directly or through others that are not paired.
struct OperatorSources {
  std::set<std::size_t> paired;
  std::set<std::size_t> unpaired;  // on the way
};
// `is_paired`: whether the operator at a position of the sequence has a partner.
[[nodiscard]] OperatorSources sources_of(const OperatorSequence& sequence,
                                         std::size_t position,
                                         const std::function<bool(std::size_t)>& is_paired);

// Whether an operator hands on the values that it reads, perhaps in another type or order in
// memory.
[[nodiscard]] bool only_copies(const ListedOperator& listed);
// Whether it adds up what ranks hold.
[[nodiscard]] bool sums_over_ranks(const ListedOperator& listed);

}  // namespace ttrace
