// Sums over ranks as c10d's operators are given them: torch.distributed, functional collectives and
// DTensor all end in these, so that nobody has to report them.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ttrace {

struct DispatchedSum {
  std::vector<at::Tensor> parts;  // this rank's addend, cut into one or more
  std::int64_t elements = 0;      // of this rank's part of the sum
  int ranks = 1;
  double weight = 1.0;  // factor of an addend in the result: of averages one over `ranks`
};

// The tensors that the operator `name` is about to add up, including all that coalesced operators
// add up. Empty for any other operator or reduction, for a group of one rank, and for reductions to
// one rank. `simulated`: this process simulates ranks, so that tensors wrap the parts of all of
// them; then each rank has a sum, and finding them runs Python code.
[[nodiscard]] std::vector<DispatchedSum> dispatched_sums(std::string_view name,
                                                         c10::ArrayRef<const c10::IValue> inputs,
                                                         bool simulated);

}  // namespace ttrace
