#include "flat_buckets.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace megatron_mini {

namespace {

// Small, so that even a tiny model has several; a larger parameter has a bucket of its own.
constexpr std::int64_t kBucketElements = 1 << 16;

// The tied weight's gradients are summed over two pipeline stages after each stage has divided its
// buckets: in a bucket of its own both stages cut it at the same places.
bool stays_alone(const ModelParameter& parameter) {
  return parameter.path.starts_with("embedding.");
}

// The ranks with the same part of the parameter.
const Group& holders_of(const ModelParameter& parameter,
                        const Group& group,
                        const Group& of_experts) {
  if (is_of_expert(parameter.role)) {
    return of_experts;
  }
  return parameter.ranks ? parameter.ranks->dp_cp : group;
}

}  // namespace

std::vector<FlatBucket> flat_buckets(std::span<const ModelParameter> parameters,
                                     const Group& group,
                                     bool divided,
                                     const Group& of_experts) {
  std::vector<FlatBucket> buckets;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t elements = parameters[i].tensor.numel();
    const Group& holders = holders_of(parameters[i], group, of_experts);
    const bool alone =
        divided && i > 0 && (stays_alone(parameters[i - 1]) || stays_alone(parameters[i]));
    const bool others =
        i > 0 && (is_of_expert(parameters[i - 1].role) != is_of_expert(parameters[i].role) ||
                  buckets.back().group.name != holders.name);
    if (buckets.empty() || alone || others || buckets.back().used + elements > kBucketElements) {
      buckets.push_back({.group = holders, .members = {}});
    }
    FlatBucket& bucket = buckets.back();
    bucket.members.push_back({i, bucket.used});
    bucket.used += elements;
  }
  for (FlatBucket& bucket : buckets) {
    const std::int64_t unit = divided ? kPartUnit * bucket.group.size : 1;
    bucket.size = (bucket.used + unit - 1) / unit * unit;
  }
  return buckets;
}

at::Tensor OwnedPart::of(const at::Tensor& whole) const {
  return first ? whole.view(-1).narrow(0, *first, count) : whole;
}

std::vector<OwnedPart> owned_parts(std::span<const ModelParameter> parameters,
                                   std::span<const FlatBucket> buckets,
                                   bool divided) {
  std::vector<OwnedPart> parts;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const FlatBucket& bucket = buckets[b];
    for (const auto& [i, offset] : bucket.members) {
      const std::int64_t elements = parameters[i].tensor.numel();
      if (!divided) {
        parts.push_back({i, std::nullopt, elements, b, offset});
        continue;
      }
      const std::int64_t mine = bucket.part() * bucket.group.rank;
      const std::int64_t begin = std::max(offset, mine);
      const std::int64_t end = std::min(offset + elements, mine + bucket.part());
      if (begin < end) {
        parts.push_back({i, begin - offset, end - begin, b, begin});
      }
    }
  }
  return parts;
}

}  // namespace megatron_mini
