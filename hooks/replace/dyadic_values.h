// Small multiples of a power of two for every module's inputs, outputs, parameters and gradients
// (TTRACE_INPUTS=dyadic): sums of products of such numbers are exact in F32 in any order, so linear
// operators and collectives must give the same bits however a layout cuts them.
//
// A value follows from the tensor's id and the element's logical index, on every layout alike. A
// candidate uses such values only where the reference did, as the reference's trace says:
// what the reference does not record it has not replaced. Of a sum over ranks the first addend
// holds the values, the others are zero.
#pragma once

#include "hooks/replace/given_values.h"
#include "trace/base/tensor_id_hash.h"

#include <string>
#include <unordered_set>

namespace ttrace {

class DyadicValues : public GivenValues {
 public:
  // `reference`: trace that a candidate's replacements follow; empty: all are replaced. Throws
  // FormatError if it cannot be read.
  explicit DyadicValues(const std::string& reference);

  [[nodiscard]] std::optional<std::vector<std::byte>> value(const TensorId& id,
                                                            const Placement& placement,
                                                            const TensorCopy& own) const override;
  [[nodiscard]] bool should_have_all() const override { return false; }

 private:
  bool follows_ = false;
  std::unordered_set<TensorId, TensorIdHash> replaced_;  // by the reference
};

}  // namespace ttrace
