// The rows of a step: which samples both programs read, as far as their own data say.
//
// Data are the tensors that programs record as such, and what the outermost module that both call
// was given. Masks that modules use are not, because a program may draw them. What a rank of the
// candidate holds of a sample has a digest in each of these tensors. It is looked up among the
// reference's samples, cut in the same way. Where the two have other lengths, one must be the other
// and a rest of one value, which is the same in all samples of this tensor: padding. The ranks of
// one sample (tensor and context parallelism) share one answer.
//
// Thread-safety: values and a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/samples/padding.h"

#include <ttrace/tensor_id.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {

// A sample of the reference.
struct SamplePlace {
  std::int64_t microbatch = 0;
  std::int64_t sample = 0;

  auto operator<=>(const SamplePlace&) const = default;
};

// A sample of the candidate: its claimed number among the samples of its micro-batch.
struct ClaimedSample {
  std::int64_t microbatch = 0;
  std::int64_t count = 0;
  std::int64_t sample = 0;

  auto operator<=>(const ClaimedSample&) const = default;
};

struct ReadSample {
  std::set<int> ranks;
  // Samples of the reference that hold the same, ascending. Nothing: no sample holds it.
  std::optional<std::vector<SamplePlace>> equal;
  // How many positions it has in the data of both, where these are not as many, and how many of
  // them are no padding, by micro-batch of the reference.
  std::map<std::int64_t, Lengths> padded = {};
  // Its integers or masks are none of the reference's, although the reference has such tensors.
  bool is_foreign = false;
};

// What the two programs read in one step.
struct DataRows {
  std::map<std::int64_t, std::int64_t> reference;  // samples by micro-batch
  std::map<ClaimedSample, ReadSample> candidate;
  std::vector<TensorId>
      names;  // of the data, without step and micro-batch, the first looked at first
  PaddedAt padded_at = PaddedAt::kEnd;
  // Ranks hold different samples of which nobody said that they lie in different places.
  bool are_ranks_apart = false;
};

// Throws FormatError for records that contradict their files.
[[nodiscard]] DataRows read_data_rows(const StepTrace& reference, const StepTrace& candidate);

}  // namespace ttrace
