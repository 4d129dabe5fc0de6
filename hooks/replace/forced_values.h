// A candidate's tensors: a forced pass uses their values after it has recorded its own.
//
// What such a pass computes for a tensor differs from the candidate's only by what the operators
// before it got wrong.
#pragma once

#include "hooks/replace/given_values.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"
#include "trace/samples/align_samples.h"

#include <string>
#include <vector>

namespace ttrace {

class ForcedValues : public GivenValues {
 public:
  // `reference`: the trace that the candidate is compared with, to whose samples the candidate's
  // are brought; empty: none. `settled`: the file with the placements of what nobody declared;
  // empty: none. Throws FormatError if a trace or the file cannot be read.
  ForcedValues(const std::string& candidate,
               const std::string& reference,
               const std::string& settled);

  // Returns nothing if the candidate does not have the tensor, has it in another shape, or if it
  // does not hold floating-point numbers.
  [[nodiscard]] std::optional<std::vector<std::byte>> value(const TensorId& id,
                                                            const Placement& placement,
                                                            const TensorCopy& own) const override;
  [[nodiscard]] bool holds(Kind kind) const override { return trace_.holds(kind); }
  [[nodiscard]] bool should_have_all() const override { return true; }

 private:
  Trace trace_;
  SampleAlignment samples_;
  ShardIndex shards_;
};

}  // namespace ttrace
