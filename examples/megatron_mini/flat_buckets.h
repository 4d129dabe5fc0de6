// How parameters lie one behind the other in flat buckets, and which part of them a rank keeps
// where the optimizer's state is divided (ZeRO-1).
//
// The layout is Megatron-LM's distributed optimizer's: a bucket is cut into equal parts, one per
// rank, whatever parameter a cut goes through; it is padded to a multiple of 64 per rank.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "collectives.h"
#include "model_parameter.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace megatron_mini {

// Elements; a rank's part of a divided bucket is a multiple of these, for aligned memory.
inline constexpr std::int64_t kPartUnit = 64;

struct FlatBucket {
  struct Member {
    std::size_t parameter = 0;  // its number
    std::int64_t offset = 0;    // of its first element
  };
  Group group;  // ranks with the same parameters, whose gradients are summed
  std::vector<Member> members;
  std::int64_t used = 0;  // elements of parameters
  std::int64_t size = 0;  // with padding

  // A divided bucket's part of a rank.
  [[nodiscard]] std::int64_t part() const { return size / group.size; }
};

// In the order of the parameters; padded where `divided`, and then the embedding's weight has a
// bucket of its own. Experts have others than the rest, as have layers that divide the ranks in a
// way of their own.
[[nodiscard]] std::vector<FlatBucket> flat_buckets(std::span<const ModelParameter> parameters,
                                                   const Group& group,
                                                   bool divided,
                                                   const Group& of_experts = {});

// What a rank keeps of a parameter.
struct OwnedPart {
  std::size_t parameter = 0;          // its number
  std::optional<std::int64_t> first;  // of its elements in row-major order; nothing: all of it
  std::int64_t count = 0;             // of elements
  std::size_t bucket = 0;
  std::int64_t offset = 0;  // of the part, in the bucket

  // The same part of a tensor of the parameter's shape, one-dimensional unless it is all of it.
  // Shares memory. Requires: a contiguous tensor.
  [[nodiscard]] at::Tensor of(const at::Tensor& whole) const;
};

// In the order of the parameters; those that this rank has nothing of are left out.
[[nodiscard]] std::vector<OwnedPart> owned_parts(std::span<const ModelParameter> parameters,
                                                 std::span<const FlatBucket> buckets,
                                                 bool divided);

}  // namespace megatron_mini
