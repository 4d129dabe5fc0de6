// The error that round-off can explain for one tensor, and where that number came from.
//
// With noise passes m_1 ... m_K of the reference r stored:
//
//   s^2   = mean_k ||m_k - r||^2            no division by ||r||: near-zero tensors need no care
//   scale = root of s^2 and the components of T2 (Yardstick)
//   bound = kernel factor x root of F's quantile x scale    (spread.h)
//
// docs/verdict_reference.md has the formula, the reason and the measurement of every component; the
// rows of ledger.h say what each rests on. Where all passes reproduced the reference bit for bit,
// the tensor must be equal. That holds only if noise was put on the operators that made it, or if
// they are known not to round, and only in steps before which no update moved.
//
// Without noise for a tensor: bound = factor(class) * unit_of(precision) * ||r||, see limits.h.
// These class defaults are weak: they know neither depth nor the cancellation within a tensor.
//
// Sources: the ratio of differences and Monte-Carlo rounding are those of stochastic arithmetic
// (CESTAC/CADNA, Verificarlo).
#pragma once

#include "analysis/bounds/error_freedom.h"
#include "analysis/bounds/limits.h"
#include "analysis/bounds/noise.h"
#include "analysis/bounds/yardstick.h"
#include "analysis/findings/check.h"
#include "trace/sums/statistics.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// alpha - 1 against what it is in noise passes; see Bounds::of_factor.
struct FactorComparison {
  double deviation = 0.0;  // <c - r, r> / <r, r>
  double scale = 0.0;      // its noise
  double bound = 0.0;      // the larger of limit x scale and `least`, and what is granted
  double least = 0.0;      // what the candidate's own spread asks for, whatever the limit
  double granted = 0.0;    // by no noise: see operator_check.h
  std::optional<RatioLimit> ratio = {};
  std::string where = {};  // of which part, "the addend of rank 3"; empty: of the whole tensor

  [[nodiscard]] bool beyond() const { return deviation > bound || deviation < -bound; }
  // The limit that it takes to be within bound; 0 where none is needed.
  [[nodiscard]] double needed_limit() const;
};

struct Bound {
  double value = 0.0;           // absolute, on ||c - r||; 0: must be equal
  std::optional<double> scale;  // noise scale that Q refers to
  BoundOrigin origin = BoundOrigin::kExact;
  std::string source;
  // Of a value above zero.
  Yardstick yardstick = {};
  std::optional<RatioLimit> ratio = {};  // from noise: the value is this times the scale
  int passes = 0;                        // that the noise is from
};

// What is judged: a tensor of the reference and that of the candidate.
struct Judged {
  const TensorId& id;
  std::size_t dimensions = 0;
  ElementType type = ElementType::kF32;  // coarser of the two storage types
  const Statistics& statistics;
  bool rescaled = false;  // the candidate computed a multiple, by no power of two, of the reference

  [[nodiscard]] TensorClass tensor_class() const { return class_of(id, dimensions); }
};

// The weight, in passes, of what parts of one size have on average against what a few passes tell
// of a head or of a rank's part, of which there are too few to tell it themselves.
inline constexpr double kPooledPasses = 5.0;

// A factor may be as many times what the candidate's own slices, or elements, spread by: five
// standard deviations, which chance exceeds once in 10^6.
inline constexpr double kOwnSpreadLimit = 5.0;

// How far chance takes the error of one tensor, and of its parts; see spread.h.
struct ErrorSpread {
  double kernel_factor = 1.0;
  double kernel_factor_along = 1.0;  // of a factor that all elements have in common
  double factor_roundings = 1.0;     // that a factor is always granted
  double own_spread = kOwnSpreadLimit;
  double inherited = 0.0;  // share of the squared noise that updates brought from earlier steps
  double freedom = 1.0;    // degrees of freedom of the whole tensor's squared error
  double by_chance = 1.0;  // share of right tensors that exceed a limit
  // Noise passes, that tell how the errors of slices vary; null, or without slices: as if elements
  // erred independently.
  const TensorNoise* passes = nullptr;
};

// What is known of the indices of a tensor's last dimension. Squared; an empty vector: nothing.
struct ColumnBound {
  double growth = 1.0;             // of the noise; without what is in `added`
  std::vector<double> least = {};  // noise of each index
  std::vector<double> added = {};  // beside the noise of each index
};

// What the parts of one tensor are judged with.
struct SliceBound {
  const TensorNoise* noise = nullptr;   // with slices
  double growth = 1.0;                  // of squared noise, as that of the whole tensor grows
  double inherited = 0.0;               // times the most that one slice has beyond its noise ...
  const TensorNoise* before = nullptr;  // ... before any update; null: of a first step
  double added_squared = 0.0;           // components of the whole that may lie in any part
  double relative_squared = 0.0;        // least squared noise over sum r^2 of the part
  std::optional<ColumnBound> columns = {};
  ErrorFreedom freedom = {};  // that the candidate's own errors show; unknown: as noise passes do
  ErrorSpread spread = {};
};

struct FactorBound {
  double scale = 0.0;
  RatioLimit ratio;

  [[nodiscard]] FactorComparison compare(double deviation) const {
    return {.deviation = deviation, .scale = scale, .bound = ratio.value * scale, .ratio = ratio};
  }
};

// Nothing: not known.
struct PartBounds {
  std::optional<SliceBound> slices;
  std::optional<FactorBound> factor;
};

class Bounds {
 public:
  // `precision` is the coarser one that the programs compute in. Noise passes of the reference say
  // nothing about a candidate of another precision: then class defaults apply. So they do where
  // the operands of F32 products are rounded (machine.h): a kernel rounds them or not by the sizes
  // of a shard, and noise passes repeat the reference's sizes. Keeps a reference to `noise`.
  Bounds(const NoiseModel& noise,
         ElementType precision,
         bool same_precision,
         const Limits& limits = {},
         bool rounded_products = false);

  [[nodiscard]] Bound of(const Judged& judged) const;
  // The largest difference of an element between two copies of a tensor, or between a recomputed
  // value and the first: 0, they must be equal, unless the reference did not reproduce the tensor
  // or an earlier one. Then 4 times the largest difference of an element that the self-check or a
  // noise pass showed, and 2 ulp of the largest element. `copies` are at least one.
  [[nodiscard]] double of_copies(const Match& match, std::span<const Shard> copies) const;
  // Of its parts, and of a deviation a = <c - r, r> / <r, r> of its factor from 1; nothing of what
  // passes did not store or move. Requires: bounds_.of(judged) came from noise.
  //
  // A part's noise grows by what micro-batches round alike, as the whole tensor's does. An update
  // of one element moves one column of what a later step computes, and another one than in any
  // pass: every slice is granted what the one that inherits most does. What else may be wrong in
  // the whole tensor may all be wrong in one part.
  //
  // Of the factor, with A = mean_k <m_k - r,
  // r>^2:
  //
  //   scale^2 = growth (K A + d g s^2 ||r||^2 / n) / (K + d) / ||r||^4 + u^2
  //   bound:    kernel factor x root of the quantile of F with 1 and K + d degrees of freedom
  //
  // s^2 ||r||^2 / n is A where elements move independently, g by how much more A is, over all
  // tensors of the kind; d is the weight of that mean, from how much those tensors differ
  // (spread.h), and less where an update brought the noise. Components other than noise enlarge it
  // by their part of s^2. u is a rounding of f32, in which programs keep factors (of the storage
  // type where the candidate computed a multiple).
  [[nodiscard]] std::optional<PartBounds> of_parts(const Judged& judged) const;
  // Whether of_parts() says anything of this tensor.
  [[nodiscard]] bool know_parts(const TensorId& id) const;
  // What chance does to an error that is held against noise, or against the operators' own
  // rounding.
  [[nodiscard]] ErrorSpread spread_against_noise(const Judged& judged) const;
  [[nodiscard]] ErrorSpread spread_against_rounding(const Judged& judged) const;
  // By how much the scores of two experts may have moved against each other; see routing_check.h.
  // `margins` is the id of a router's margins, the largest of which is `largest`.
  [[nodiscard]] Bound of_flips(const TensorId& margins, std::int64_t tokens, double largest) const;

 private:
  // A few flips of the largest element.
  [[nodiscard]] double flips_of(ElementType type, double largest) const;
  // Noise of a tensor that passes say something of, or null and why not.
  [[nodiscard]] const TensorNoise* usable_noise(const TensorId& id, std::string& why) const;
  [[nodiscard]] Bound from_noise(const Judged& judged, const TensorNoise& noise) const;
  // All but what storage adds.
  [[nodiscard]] Yardstick yardstick_of(const Judged& judged, const TensorNoise& noise) const;
  [[nodiscard]] double common_growth(const TensorId& id) const;
  // `growth` of squared noise, and `others`, the other components over it.
  [[nodiscard]] FactorBound of_factor(const Judged& judged,
                                      const TensorNoise& noise,
                                      double growth,
                                      double others) const;
  // i^2 / s^2 of a tensor that noise moved.
  [[nodiscard]] double inherited_share(const TensorId& id) const;
  // nu of one pass.
  [[nodiscard]] double freedom_of(const Judged& judged) const;
  // Of one of three checks of one tensor.
  [[nodiscard]] double by_chance() const;
  [[nodiscard]] Bound from_class(const Judged& judged, const std::string& why) const;

  const NoiseModel& noise_;
  Limits limits_;
  std::string source_;  // "5 noise passes"
  ElementType precision_;
  bool same_precision_;
  bool rounded_products_;
};

}  // namespace ttrace
