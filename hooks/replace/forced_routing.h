// Choices of experts that a pass follows instead of its own.
//
// Two experts of nearly equal score change places under round-off, and what follows for that token
// is another computation, not the same one with an error. So that errors can be judged, a reference
// may follow a candidate (TTRACE_CANDIDATE). A noise pass always follows another run: the candidate
// that its reference followed, or else the reference itself.
//
// Thread-safety: immutable after construction, which reads HDF5 files: on the training thread,
// before the writer thread exists.
#pragma once

#include "hooks/base/environment.h"
#include "trace/merge/routing.h"

#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace ttrace {

class ForcedRouting {
 public:
  // Reads a trace. Throws UsageError or FormatError where its choices cannot be read.
  explicit ForcedRouting(const std::string& directory);

  // The choices that the variables request, or nothing. Throws UsageError, also for a noise pass
  // whose reference used another candidate's choices than those of TTRACE_CANDIDATE, or if that
  // variable is missing.
  [[nodiscard]] static std::optional<ForcedRouting> of(const Environment& environment);

  // The part of the choices that `placement` describes, on the device of `own`. Throws UsageError
  // if the trace does not have the id, or has it in another shape.
  [[nodiscard]] at::Tensor choices(const TensorId& id,
                                   const Placement& placement,
                                   const at::Tensor& own) const;

  // See digest_of().
  [[nodiscard]] const std::string& digest() const { return digest_; }

 private:
  std::string directory_;
  Routing routing_;
  std::string digest_;
};

}  // namespace ttrace
