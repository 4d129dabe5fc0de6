// How samples lie that two programs pad to different lengths.
//
// A program that pads each batch to its own longest sample gives one sample other lengths in
// batches of other sizes. The positions of the shorter one are those of the longer one but for a
// rest, which is padding, at the end or at the start.
//
// Thread-safety: values without shared state.
#pragma once

#include "trace/base/index_set.h"
#include "trace/place/sample_dim.h"
#include "trace/samples/row_digests.h"

#include <ttrace/placement.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace ttrace {

enum class PaddedAt : std::uint8_t { kEnd, kStart };

// How many positions a sample has in the tensors of each program.
struct Widths {
  std::int64_t candidate = 0;
  std::int64_t reference = 0;

  auto operator<=>(const Widths&) const = default;
};

// Of one sample: how many positions are no padding, by those that it has with padding.
using Lengths = std::map<Widths, std::int64_t>;

// A candidate's tensor that lies on one of the reference with as many samples or others, and with
// other positions in each.
class PaddedTensor {
 public:
  // Nothing if the two differ in more than what can be positions: in their number of dimensions, or
  // where their samples lie. `shape`: the reference's.
  static std::optional<PaddedTensor> of(const Placement& placement,
                                        const SampleDim& samples,
                                        std::span<const std::int64_t> shape,
                                        const SampleDim& of_reference,
                                        PaddedAt padded);

  // Of all that differs in length; empty if nothing does.
  [[nodiscard]] std::set<Widths> widths() const;
  // How many dimensions differ in length, that of samples included.
  [[nodiscard]] std::size_t axes() const { return axes_.size(); }
  // The same for samples of these lengths: only what is no padding is what both have.
  [[nodiscard]] PaddedTensor shortened(const Lengths& lengths) const;
  // Of the reference's tensor: consecutive indices of a sample, and all its indices.
  [[nodiscard]] std::int64_t rows() const { return of_reference_.rows; }
  [[nodiscard]] std::int64_t per_sample() const { return shape_[own_.dim] / of_reference_.count; }
  // Whether the reference has positions that the candidate does not have.
  [[nodiscard]] bool has_rest() const;

  // The dimensions of a candidate's rank, where they hold what both have: their logical indices are
  // the reference's. That of samples is as it was.
  [[nodiscard]] std::vector<DimPlacement> common(const Placement& placement) const;
  // The same of an index within a sample; kPadding if the reference does not have it.
  [[nodiscard]] std::int64_t common_within(std::int64_t index) const;
  // What a candidate's rank holds of a sample and the reference does not have. Only local indices
  // have a meaning. Requires: axes() is 1.
  [[nodiscard]] std::vector<DimPlacement> own_rest(const Placement& placement,
                                                   const RowIndices& row) const;
  // What these samples of the reference have and the candidate's do not, as parts of the
  // reference's tensor without a common element.
  [[nodiscard]] std::vector<Placement> rests_of_reference(
      const std::set<std::int64_t>& samples) const;

 private:
  // A dimension that differs in length.
  struct Axis {
    bool is_of_samples = false;  // positions within the dimension of samples
    std::size_t dim = 0;
    std::int64_t inner = 1;  // consecutive indices of one position
    Widths widths;
    std::int64_t length = 0;  // positions that are no padding, as far as somebody said
  };

  [[nodiscard]] std::int64_t shift(const Axis& axis) const;
  // Positions that both have, in the reference's numbers.
  [[nodiscard]] Interval shared(const Axis& axis) const;
  [[nodiscard]] IndexSet rest_of_reference(const Axis& axis) const;

  SampleDim own_;
  SampleDim of_reference_;
  std::vector<std::int64_t> shape_;
  PaddedAt padded_ = PaddedAt::kEnd;
  std::vector<Axis> axes_;
};

}  // namespace ttrace
