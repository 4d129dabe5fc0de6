// Finds where in a tensor the error exceeds the noise there: an index of a dimension, a row, a
// head, or a rank's part.
//
// A whole tensor's error hides an error in a few of its rows. Slice i has n_i of the n elements,
// v_i = mean_k ||m_k - r||^2 over the slice, and s^2 is the same over the whole tensor:
//
//   v    = (K v_i + w s^2 n_i / n) / (K + w)        K passes
//   Q_i  = ||c - r||_i / sqrt(growth v + added)     of the whole tensor (bounds.h)
//   bound: the ratio limit (spread.h) of nu_i and (K + w) nu_i degrees of freedom
//
// A few elements of K passes do not measure their noise well, and some slices hardly moved by
// chance. So we mix a slice's own noise with the average noise of a slice of its size. nu_i and the
// weight w follow from how the slices' noise varies between passes and between slices; T1, which
// has one pass, takes nu_i from the noise passes. For a group of slices, v_i adds up, nu_i is the
// whole tensor's in proportion to its elements (of a head at least that of one slice), and w is 5,
// of a head at most that of slices. For a rank's part, v_i is s^2 times the share of the noise that
// its indices have in every dimension. A slice in which few elements matter has no more degrees of
// freedom than those.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/tensor_pair.h"
#include "analysis/bounds/bounds.h"
#include "trace/kernels/sketch_grid.h"
#include "trace/merge/merge.h"
#include "trace/sums/slices.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// The part of a tensor that is farthest beyond the noise there, or nearest to its bound; see
// slices.h.
struct SliceComparison {
  std::string where;       // "rows 17:18 of dimension 0"
  std::vector<int> ranks;  // candidate's, that hold it
  double error = 0.0;      // ||c - r|| over it
  double scale = 0.0;      // of its own noise
  double q = 0.0;          // error / scale
  double bound = 0.0;
  RatioLimit ratio = {};   // that the bound follows from
  bool is_addend = false;  // of a sum over ranks, against what the rank's own rows give

  [[nodiscard]] bool beyond() const { return error > bound; }
};

// Where a limit is from.
void add_terms(const RatioLimit& ratio, Check& check);

// The check of a part or of a factor with its numbers and place; symptom and sentence are the
// caller's.
[[nodiscard]] Check check_of(const SliceComparison& slice, Question question);
[[nodiscard]] Check check_of(const FactorComparison& factor, Question question);

// ", held by ranks 0, 1,"; empty if the part's name says it.
[[nodiscard]] std::string held_by(const SliceComparison& slice);

[[nodiscard]] Slices sum_slices(const TensorPair& pair);

// The dimensions in whose indices rows differ. Requires: a dimension of more than one index.
[[nodiscard]] std::vector<std::int64_t> leading_shape(std::span<const std::int64_t> shape);

// Groups runs of `size` consecutive slices, such as heads in a dimension of hidden units. Requires:
// `size` divides their number.
[[nodiscard]] std::vector<SliceSums> sum_groups(std::span<const SliceSums> slices,
                                                std::int64_t size);

// Names parts of a tensor by what its programmer knows: the indices of its dimensions.
class PartNames {
 public:
  PartNames() = default;  // parts of the tensor itself
  // Parts of a sketch's cells, which are blocks of a tensor of this shape.
  PartNames(const SketchGrid& grid, std::span<const std::int64_t> shape);

  // "rows 16:32 of dimension 0". Indices [begin, end) of dimension `dim` of what is compared.
  [[nodiscard]] std::string indices(std::size_t dim, std::int64_t begin, std::int64_t end) const;
  // "head 3, 192:256 of dimension 2".
  [[nodiscard]] std::string head(std::size_t number,
                                 std::size_t dim,
                                 std::int64_t begin,
                                 std::int64_t end) const;

 private:
  struct Blocks {
    std::string dimension;
    std::int64_t width = 1;  // of a block
    std::int64_t size = 0;   // of the dimension
  };
  [[nodiscard]] std::string range(std::size_t dim, std::int64_t begin, std::int64_t end) const;

  std::vector<Blocks> blocks_;
};

// What parts of a tensor are judged by.
struct SliceContext {
  const SliceBound& bound;
  std::span<const Shard> candidate;
  std::int64_t head = 0;  // number of indices of the last dimension per head; 0 without heads
  PartNames names = {};
};

// The part of largest Q. Returns nothing if the stored noise is not of this shape. `slices` are
// those of `pair`.
[[nodiscard]] std::optional<SliceComparison> worst_slice(const TensorPair& pair,
                                                         const Slices& slices,
                                                         const SliceContext& context);

}  // namespace ttrace
