// Puts other values in place of the program's own: a candidate's (TTRACE_PASS=forced), or made-up
// ones (TTRACE_INPUTS=dyadic).
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/row_parts.h"
#include "hooks/base/tensor_copy.h"
#include "hooks/capture/recorder.h"
#include "hooks/replace/given_values.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ttrace {

class Replacement {
 public:
  using Bytes = std::vector<std::byte>;

  // `values` null: the program keeps its own. `recorder` outlives this object.
  Replacement(std::unique_ptr<const GivenValues> values, Recorder& recorder);

  // Whether this pass replaces values.
  [[nodiscard]] bool active() const { return values_ != nullptr; }
  // The values that replace those in `copy`; nothing if the program keeps its own. `options` are
  // those with which the tensor is recorded.
  [[nodiscard]] std::optional<Bytes> of(const TensorId& id,
                                        const TensorCopy& copy,
                                        const Recorder::Options& options);
  // The same for a tensor of which `parts` are recorded; `kind` is the value's or its gradient's.
  [[nodiscard]] std::optional<Bytes> of(const std::vector<RowPart>& parts,
                                        Kind kind,
                                        const TensorCopy& copy);
  void end_step() { missing_ = 0; }

 private:
  void count_missing(const TensorId& id);

  const std::unique_ptr<const GivenValues> values_;
  Recorder& recorder_;
  std::uint64_t missing_ = 0;  // values of this step that the candidate does not have
};

}  // namespace ttrace
