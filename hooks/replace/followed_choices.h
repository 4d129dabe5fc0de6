// Choices that a pass follows instead of its own: of experts, and what random operators drew.
//
// Two experts of nearly equal score change places under round-off, and two programs draw their
// random numbers in different orders. What follows is another computation, not the same one with an
// error. So that errors can be judged, a reference may follow a candidate (TTRACE_CANDIDATE). A
// noise pass always follows another run: the candidate that its reference followed, or else the
// reference itself. Data that its reference has drawn it draws again.
//
// Thread-safety: immutable after construction, which reads HDF5 files: on the training thread,
// before the writer thread exists.
#pragma once

#include "hooks/base/environment.h"
#include "hooks/base/tensor_copy.h"
#include "trace/merge/draws.h"
#include "trace/merge/routing.h"

#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

class FollowedChoices {
 public:
  // Reads a trace. `reference`: the trace to whose samples its own are brought, where each of them
  // is known; empty: none. `repeats`: the pass repeats that reference, data and all; otherwise it
  // follows data that data_of_its_own() finds. Throws UsageError or FormatError where choices
  // cannot be read.
  FollowedChoices(const std::string& directory, const std::string& reference, bool repeats);

  // The choices that the variables request, or null. Throws UsageError, also for a noise pass whose
  // reference used another candidate's choices than those of TTRACE_CANDIDATE, or if that variable
  // is missing.
  [[nodiscard]] static std::shared_ptr<const FollowedChoices> of(const Environment& environment);

  // The part of a router's choices that `placement` describes, on the device of `own`. Throws
  // UsageError if the trace does not have the id, or has it in another shape.
  [[nodiscard]] at::Tensor experts(const TensorId& id,
                                   const Placement& placement,
                                   const at::Tensor& own) const;
  // The part of a draw that takes the place of `own`, which lies at `placement`. Nothing if the
  // trace has no such draw that can be followed, or has it in another shape: a comparison says so.
  // Nothing either for data that the program itself draws.
  [[nodiscard]] std::optional<std::vector<std::byte>> draw(const TensorId& id,
                                                           const Placement& placement,
                                                           const TensorCopy& own) const;

  // See digest_of_choices().
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  Trace reference_;  // first: the other trace's samples are brought to where this one has them
  Trace trace_;
  Routing routing_;
  Draws draws_;
  std::string digest_;
  Draws of_reference_;
  const Draws* data_ = nullptr;  // null: the program's own
};

}  // namespace ttrace
