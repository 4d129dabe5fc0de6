#include "analysis/infer/samples.h"

#include "trace/base/random.h"
#include "trace/file/record.h"

#include <ttrace/element_type.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ttrace {
namespace {

constexpr std::size_t kMostDrawn = 16384;  // elements looked at
constexpr std::size_t kMostKept = 4096;    // and compared, those that are not zero first
constexpr std::size_t kMostNonzero = 3072;
constexpr std::uint64_t kSeed = 20240229;

// Positions in a tensor of so many elements, the same on every call.
std::vector<std::int64_t> draw(std::int64_t elements) {
  std::vector<std::int64_t> drawn;
  if (elements <= static_cast<std::int64_t>(kMostDrawn)) {
    drawn.resize(static_cast<std::size_t>(elements));
    std::iota(drawn.begin(), drawn.end(), std::int64_t{0});
    shuffle(drawn, kSeed);
  } else {
    for (std::size_t i = 0; i < kMostDrawn; ++i) {
      drawn.push_back(
          static_cast<std::int64_t>(random_bits(kSeed, i) % static_cast<std::uint64_t>(elements)));
    }
  }
  return drawn;
}

}  // namespace

void AgreementSums::add(double value, double expected) {
  if (!std::isfinite(value) || !std::isfinite(expected)) {
    return;
  }
  ++points_;
  squared_ += value * value;
  reference_squared_ += expected * expected;
  along_ += value * expected;
  difference_squared_ += (value - expected) * (value - expected);
}

Agreement AgreementSums::agreement() const {
  Agreement agreement;
  agreement.points = points_;
  if (reference_squared_ == 0.0) {
    agreement.both_zero = squared_ == 0.0;
    agreement.error = agreement.error_as_is = squared_ == 0.0 ? 0.0 : agreement.error;
    return agreement;
  }
  agreement.error_as_is = std::sqrt(difference_squared_ / reference_squared_);
  if (along_ <= 0.0) {
    agreement.error = std::min(1.0, agreement.error_as_is);
    return agreement;
  }
  agreement.factor = along_ / squared_;
  // Loses what is below 1e-8 to cancellation; equal values are recognised by the difference itself.
  const double rest = 1.0 - along_ / squared_ * along_ / reference_squared_;
  agreement.error = std::min(std::sqrt(std::max(0.0, rest)), agreement.error_as_is);
  return agreement;
}

double element_at(ElementType type, std::span<const std::byte> bytes, std::int64_t position) {
  double value = 0.0;
  const auto offset = static_cast<std::size_t>(position) * element_size(type);
  to_double(type, bytes.data() + offset, 1, &value);
  return value;
}

std::int64_t logical_index(const DimPlacement& dim, std::int64_t local) {
  const auto next = std::ranges::upper_bound(dim.segments, local, {}, &Segment::local);
  if (next == dim.segments.begin()) {
    return kPadding;
  }
  const Segment& segment = *std::prev(next);
  return local < segment.local + segment.extent ? segment.logical + local - segment.local
                                                : kPadding;
}

Samples::Samples(std::span<const Shard> shards, const MergeResult& reference)
    : reference_(reference), dims_(reference.shape.size()), values_(shards.size()) {
  for (const Shard& shard : shards) {
    const auto known = std::ranges::find(positions_, shard.record->shape, &Positions::shape);
    positions_of_.push_back(static_cast<std::size_t>(known - positions_.begin()));
    if (known == positions_.end()) {
      positions_.push_back({shard.record->shape, {}, 0});
    }
  }
  choose(shards);
}

void Samples::choose(std::span<const Shard> shards) {
  for (std::size_t kind = 0; kind < positions_.size(); ++kind) {
    Positions& positions = positions_[kind];
    std::vector<std::int64_t> drawn = draw(element_count(positions.shape));
    // A gradient of embeddings is zero almost everywhere, and zeros alone would decide nothing.
    const auto zeros = std::stable_partition(drawn.begin(), drawn.end(), [&](std::int64_t at) {
      for (std::size_t holder = 0; holder < shards.size(); ++holder) {
        if (positions_of_[holder] == kind &&
            element_at(shards[holder].record->type, shards[holder].bytes, at) != 0.0) {
          return true;
        }
      }
      return false;
    });
    const auto nonzero = static_cast<std::size_t>(zeros - drawn.begin());
    const std::size_t kept_zeros = std::min(drawn.size() - nonzero, kMostKept - kMostNonzero);
    const std::size_t kept = std::min(nonzero, kMostKept - kept_zeros);
    drawn.erase(drawn.begin() + static_cast<std::ptrdiff_t>(kept), zeros);
    drawn.resize(std::min(drawn.size(), kMostKept));
    positions.count = drawn.size();
    longest_ = std::max(longest_, drawn.size());
    for (const std::int64_t at : drawn) {
      std::int64_t rest = at;
      const std::size_t first = positions.indices.size();
      positions.indices.resize(first + dims_);
      for (std::size_t dim = dims_; dim > 0; --dim) {
        positions.indices[first + dim - 1] = rest % positions.shape[dim - 1];
        rest /= positions.shape[dim - 1];
      }
    }
    for (std::size_t holder = 0; holder < shards.size(); ++holder) {
      for (std::size_t i = 0; positions_of_[holder] == kind && i < drawn.size(); ++i) {
        values_[holder].push_back(
            element_at(shards[holder].record->type, shards[holder].bytes, drawn[i]));
      }
    }
  }
}

bool Samples::can_add(const std::vector<std::vector<std::size_t>>& groups) const {
  return std::ranges::all_of(groups, [&](const std::vector<std::size_t>& group) {
    return std::ranges::all_of(group, [&](std::size_t holder) {
      return positions_of_[holder] == positions_of_[group.front()];
    });
  });
}

Agreement Samples::compare(const PlaceClaim& claim, std::size_t limit) const {
  AgreementSums sums;
  for (const std::vector<std::size_t>& group : claim.groups) {
    const std::size_t first = group.front();
    const Positions& positions = positions_[positions_of_[first]];
    const std::vector<const DimPlacement*>& dims = claim.dims[first];
    for (std::size_t i = 0; i < std::min(limit, positions.count); ++i) {
      std::int64_t at = 0;
      for (std::size_t dim = 0; dim < dims_ && at != kPadding; ++dim) {
        const std::int64_t index = logical_index(*dims[dim], positions.indices[i * dims_ + dim]);
        at = index == kPadding ? kPadding : at * reference_.shape[dim] + index;
      }
      double value = 0.0;
      for (const std::size_t holder : group) {
        value += values_[holder][i] * (claim.scales.empty() ? 1.0 : claim.scales[holder]);
      }
      sums.add(value, at == kPadding ? 0.0 : element_at(reference_.type, reference_.bytes, at));
    }
  }
  return sums.agreement();
}

}  // namespace ttrace
