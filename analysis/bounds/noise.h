// What the stored noise passes say about every tensor of the reference.
//
// Thread-safety: immutable after construction.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/bounds/gradient_factors.h"
#include "analysis/bounds/irreproducible.h"
#include "analysis/bounds/spread.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/noise_table.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ttrace {

// What all passes m_k did to one tensor.
struct TensorNoise {
  double mean_squared = 0.0;    // s^2 = mean_k ||m_k - r||^2
  double mean_fourth = 0.0;     // mean_k ||m_k - r||^4
  double max_abs = 0.0;         // largest element of any m_k - r
  int passes = 0;               // that hold the tensor
  std::uint64_t nonfinite = 0;  // NaN and Inf that the passes produced
  // By slice (slices.h), mean over the passes of the squared norm and of its square; empty where
  // not all passes tell, and of tensors that no pass moved.
  std::vector<double> slices;
  std::vector<double> slices_fourth = {};
  std::optional<double> along_squared;  // mean_k <m_k - r, r>^2, where all passes tell
  double irreproducible = 0.0;       // ||r' - r||^2 of the self-check's run r', which none of the
                                     // numbers above is below
  std::optional<bool> covered = {};  // see NoiseRow; false where one pass says so

  // No noise was put on what made it, nor did any come with what it was made of: that all passes
  // reproduced it says nothing.
  [[nodiscard]] bool untouched() const { return covered == false && mean_squared == 0.0; }
};

// What tensors that are like one another tell of how their noise varies.
struct NoiseSpread {
  Scatter squared;  // of ||m_k - r||^2
  // Of <m - r, r>^2 n / (||m - r||^2 ||r||^2): how much more of the noise lies along r than if
  // elements moved independently of one another.
  VariancePrior along;
};

// The noise of all tensors of one kind and slot in one step.
struct KindNoise {
  double largest = 0.0;  // D: of an element
  NoiseSpread of_vectors = {};
  NoiseSpread of_others = {};

  // `dimensions` of the logical tensor.
  [[nodiscard]] const NoiseSpread& spread(std::size_t dimensions) const {
    return dimensions > 1 ? of_others : of_vectors;
  }
};

// The noise of every tensor, summed pass by pass.
class NoiseTotals {
 public:
  NoiseTotals() = default;
  NoiseTotals(const std::vector<NoisePass>& passes);  // implicit: another form of the same
  NoiseTotals(NoiseTotals&&) = default;               // no copies: by_row_ points into the table
  NoiseTotals& operator=(NoiseTotals&&) = default;
  void add(const NoisePass& pass);

 private:
  friend class NoiseModel;
  using Tensors = std::unordered_map<TensorId, TensorNoise, TensorIdHash>;

  int passes_ = 0;
  Tensors tensors_;
  // Passes mostly hold the same ids in the same order: where the last pass had them.
  std::vector<Tensors::value_type*> by_row_;
};

class NoiseModel {
 public:
  // `matches` give the tensors' sizes, which noise tables do not hold. What the reference does not
  // reproduce is noise that a candidate has as well: a few passes may show too little of it.
  NoiseModel(NoiseTotals totals,
             std::span<const Match> matches,
             Irreproducible irreproducible = {},
             const GradientFactors& factors = {});

  [[nodiscard]] int passes() const { return passes_; }
  [[nodiscard]] const Irreproducible& irreproducible() const { return irreproducible_; }
  // Null where no pass holds the tensor.
  [[nodiscard]] const TensorNoise* find(const TensorId& id) const;
  // The number of tensors that any pass moved, at least 1.
  [[nodiscard]] double moved() const { return moved_; }
  // Of this one's step, kind and slot; without noise where no pass holds any.
  [[nodiscard]] KindNoise of_kind(const TensorId& id) const;
  // The largest noise of an element over max |r|, of a scale or an amax history in all
  // micro-batches of its step. 0 where no pass holds it.
  [[nodiscard]] double of_scale(const TensorId& id) const;
  // Sum over the micro-batches m of s_m of `parameter`'s gradient, times what the reference
  // multiplies such sums by: how far its accumulated gradient would be off if all micro-batches
  // erred alike.
  [[nodiscard]] double if_all_alike(std::int64_t step, const std::string& parameter) const;
  // Squared noise that this tensor of one micro-batch has beyond that of the same one in the first
  // step of the trace: what it inherits from parameters that updates have changed since.
  [[nodiscard]] double inherited(const TensorId& id) const;
  // The noise of the same tensor in that first step; null in it, and where no pass holds it.
  [[nodiscard]] const TensorNoise* before_updates(const TensorId& id) const;
  // Whether any pass moved what an optimizer's step before this one was made from or made: then a
  // parameter may be another by a rounding, in few enough elements for no pass to show it.
  [[nodiscard]] bool updated_before(std::int64_t step) const {
    return first_update_ && *first_update_ < step;
  }

 private:
  int passes_ = 0;
  NoiseTotals::Tensors tensors_;
  Irreproducible irreproducible_;
  double moved_ = 1.0;
  std::map<std::tuple<std::int64_t, Kind, int>, KindNoise> kinds_;
  std::map<TensorId, double> scales_;  // by id without micro-batch
  std::map<std::pair<std::int64_t, std::string>, double> if_all_alike_;
  std::optional<std::int64_t> first_step_;    // that has gradients of parameters
  std::optional<std::int64_t> first_update_;  // step whose update the passes moved
};

}  // namespace ttrace
