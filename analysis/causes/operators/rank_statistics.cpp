// A normalisation over samples (BatchNorm) whose ranks take the statistics of their own samples
// alone. It is affine in every channel, so what the reference returned says what each rank returns:
// its part of the reference, moved and stretched to the mean and the deviation of the whole batch.
// Behind an earlier error the candidate's own parts must have these instead.
#include "analysis/causes/common/evidence.h"
#include "analysis/causes/signatures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kChannels = 1;  // dimension [samples, channels, ...]

struct ChannelStatistics {
  std::vector<double> mean;  // by channel
  std::vector<double> deviation;
};

struct BatchShape {
  std::size_t samples = 0;
  std::size_t channels = 0;
  std::size_t inner = 1;
};

BatchShape batch_shape_of(const std::vector<std::int64_t>& shape) {
  BatchShape batch{
      static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[kChannels]), 1};
  for (std::size_t i = kChannels + 1; i < shape.size(); ++i) {
    batch.inner *= static_cast<std::size_t>(shape[i]);
  }
  return batch;
}

// Calls use(position, channel) for every element.
template <class Use>
void for_each_element(const BatchShape& shape, Use&& use) {
  std::size_t position = 0;
  for (std::size_t sample = 0; sample < shape.samples; ++sample) {
    for (std::size_t channel = 0; channel < shape.channels; ++channel) {
      for (std::size_t i = 0; i < shape.inner; ++i) {
        use(position++, channel);
      }
    }
  }
}

ChannelStatistics channel_statistics(const Values& values) {
  const BatchShape batch = batch_shape_of(values.shape);
  const auto count = static_cast<double>(batch.samples * batch.inner);
  ChannelStatistics result{std::vector<double>(batch.channels),
                           std::vector<double>(batch.channels)};
  for_each_element(batch, [&](std::size_t position, std::size_t channel) {
    result.mean[channel] += values.data[position] / count;
  });
  for_each_element(batch, [&](std::size_t position, std::size_t channel) {
    result.deviation[channel] += std::pow(values.data[position] - result.mean[channel], 2) / count;
  });
  for (double& value : result.deviation) {
    value = std::sqrt(value);
  }
  return result;
}

// The values with other statistics. A channel that is constant stays so.
Values with_statistics(const Values& values, const ChannelStatistics& wanted) {
  const ChannelStatistics own = channel_statistics(values);
  Values result = values;
  for_each_element(batch_shape_of(values.shape), [&](std::size_t position, std::size_t channel) {
    const double stretch =
        own.deviation[channel] > 0.0 ? wanted.deviation[channel] / own.deviation[channel] : 0.0;
    result.data[position] =
        wanted.mean[channel] + stretch * (values.data[position] - own.mean[channel]);
  });
  return result;
}

bool is_part_of_batch(const RankPart& part, const Sides& sides) {
  const std::vector<std::int64_t>& shape = part.sides.shape();
  return shape.size() > kChannels && shape.size() == sides.shape().size() &&
         part.sides.reference.shape == part.sides.candidate.shape && shape[0] > 0 &&
         shape[0] < sides.shape()[0] && shape[kChannels] == sides.shape()[kChannels];
}

// What of the parts' errors is left, as a share: by their parts of the reference, and by their own
// values.
struct Unexplained {
  double of_reference = 0.0;
  double of_own = 0.0;
  double moved = 0.0;  // what is not left, but was: by how much the reference's parts change
};

Unexplained unexplained_by(const std::vector<RankPart>& parts, const ChannelStatistics& whole) {
  double error = 0.0;
  Unexplained left;
  for (const RankPart& part : parts) {
    const Values& found = part.sides.candidate;
    error += std::pow(part.sides.error, 2);
    const Values expected = with_statistics(part.sides.reference, whole);
    left.moved += std::pow(distance(part.sides.reference, expected), 2);
    left.of_reference += std::pow(distance(found, expected), 2);
    left.of_own += std::pow(distance(found, with_statistics(found, whole)), 2);
  }
  const auto share = [error](double squared) { return std::sqrt(squared / error); };
  return error > 0.0 ? Unexplained{share(left.of_reference), share(left.of_own), share(left.moved)}
                     : Unexplained{1.0, 1.0, 0.0};
}

}  // namespace

Hypotheses find_rank_statistics(const Evidence& evidence, const Sides& sides) {
  // What round-off leaves of a part's mean and deviation, over the error.
  constexpr double kOwnShare = 0.05;
  constexpr double kLeastMoved = 0.5;  // else the reference's parts have these statistics as well
  if (evidence.finding().id.kind != Kind::kOutput) {
    return {};
  }
  const std::vector<RankPart> parts = rank_parts(evidence.match().candidate, sides.reference);
  const bool are_cut = parts.size() > 1 && std::ranges::all_of(parts, [&](const RankPart& part) {
                         return is_part_of_batch(part, sides);
                       });
  if (!are_cut) {
    return {};
  }
  const Unexplained left = unexplained_by(parts, channel_statistics(sides.reference));
  const bool speak_for_themselves = left.of_own <= kOwnShare && left.moved >= kLeastMoved;
  const double rest = sides.error * (speak_for_themselves ? std::min(left.of_own, left.of_reference)
                                                          : left.of_reference);
  if (!evidence.explains(rest)) {
    return {};
  }
  Hypothesis hypothesis = about(
      sides,
      Signature::kLocalStatistics,
      rest,
      "every rank normalises by the mean and the variance of its own samples, as BatchNorm does "
      "under data parallelism; the reference takes those of the whole batch. Use SyncBatchNorm "
      "(torch.nn.SyncBatchNorm.convert_sync_batchnorm), or keep these modules in eval()");
  for (const RankPart& part : parts) {
    hypothesis.named.ranks.push_back(part.rank());
  }
  return {std::move(hypothesis)};
}

}  // namespace ttrace
