#include "analysis/bounds/noise.h"

#include "trace/sums/squared.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ttrace {
namespace {

bool is_scale(const TensorId& id) {
  return id.kind == Kind::kScale || id.kind == Kind::kAmaxHistory;
}

TensorId of_all_microbatches(TensorId id) {
  id.microbatch = kNoMicrobatch;
  return id;
}

// Sums until complete() makes means of them.
void add_row(const NoiseRow& row, TensorNoise& noise) {
  noise.mean_squared += row.sum_squared;
  noise.mean_fourth += squared(row.sum_squared);
  noise.max_abs = std::max(noise.max_abs, row.max_abs);
  noise.nonfinite += row.nonfinite;
  if (row.covered) {
    noise.covered = noise.covered.value_or(true) && *row.covered;
  }
  const bool first = noise.passes++ == 0;
  if (!row.along_reference || (!first && !noise.along_squared)) {
    noise.along_squared.reset();
    return;
  }
  noise.along_squared = noise.along_squared.value_or(0.0) + std::pow(*row.along_reference, 2);
  if (row.slices.size() > noise.slices.size()) {
    noise.slices.resize(row.slices.size());
    noise.slices_fourth.resize(row.slices.size());
  }
  for (std::size_t i = 0; i < row.slices.size(); ++i) {
    noise.slices[i] += row.slices[i];
    noise.slices_fourth[i] += squared(row.slices[i]);
  }
}

void complete(TensorNoise& noise) {
  noise.mean_squared /= noise.passes;
  noise.mean_fourth /= noise.passes;
  if (!noise.along_squared) {
    noise.slices.clear();
    noise.slices_fourth.clear();
    return;
  }
  *noise.along_squared /= noise.passes;
  for (double& slice : noise.slices) {
    slice /= noise.passes;
  }
  for (double& slice : noise.slices_fourth) {
    slice /= noise.passes;
  }
}

// No number is below that of the second run of the reference.
void take_in(const NoiseRow& second, TensorNoise& noise) {
  noise.irreproducible = second.sum_squared;
  noise.mean_squared = std::max(noise.mean_squared, second.sum_squared);
  noise.max_abs = std::max(noise.max_abs, second.max_abs);
  noise.nonfinite += second.nonfinite;
  if (!noise.along_squared || !second.along_reference) {
    return;
  }
  noise.along_squared = std::max(*noise.along_squared, std::pow(*second.along_reference, 2));
  noise.slices.resize(std::max(noise.slices.size(), second.slices.size()));
  noise.slices_fourth.resize(noise.slices.size());
  for (std::size_t i = 0; i < second.slices.size(); ++i) {
    noise.slices[i] = std::max(noise.slices[i], second.slices[i]);
    noise.slices_fourth[i] = std::max(noise.slices_fourth[i], squared(noise.slices[i]));
  }
}

}  // namespace

NoiseTotals::NoiseTotals(const std::vector<NoisePass>& passes) {
  for (const NoisePass& pass : passes) {
    add(pass);
  }
}

void NoiseTotals::add(const NoisePass& pass) {
  ++passes_;
  tensors_.reserve(pass.rows.size());
  by_row_.resize(pass.rows.size(), nullptr);
  for (std::size_t i = 0; i < pass.rows.size(); ++i) {
    const NoiseRow& row = pass.rows[i];
    if (by_row_[i] == nullptr || by_row_[i]->first != row.id) {
      by_row_[i] = &*tensors_.try_emplace(row.id).first;
    }
    add_row(row, by_row_[i]->second);
  }
}

NoiseModel::NoiseModel(NoiseTotals totals,
                       std::span<const Match> matches,
                       Irreproducible irreproducible,
                       const GradientFactors& factors)
    : passes_(totals.passes_),
      tensors_(std::move(totals.tensors_)),
      irreproducible_(std::move(irreproducible)) {
  for (auto& [id, noise] : tensors_) {
    complete(noise);
    if (const NoiseRow* const second = irreproducible_.find(id)) {
      take_in(*second, noise);
    }
    if (id.kind == Kind::kParamGrad) {
      if_all_alike_[{id.step, id.path}] += std::sqrt(noise.mean_squared);
      first_step_ = std::min(first_step_.value_or(id.step), id.step);
    }
  }

  for (auto& [parameter, alike] : if_all_alike_) {
    const auto factor = factors.find(parameter.first);
    alike *= factor == factors.end() ? 1.0 : factor->second;
  }

  double moved = 0.0;
  for (const Match& match : matches) {
    const TensorNoise* noise = find(match.id);
    if (noise == nullptr || match.reference.empty()) {
      continue;
    }
    KindNoise& kind = kinds_[{match.id.step, match.id.kind, match.id.slot}];
    kind.largest = std::max(kind.largest, noise->max_abs);
    if (traits_of(match.id.kind).of_update && noise->max_abs > 0.0) {
      first_update_ = std::min(first_update_.value_or(match.id.step), match.id.step);
    }
    const Record& record = *match.reference.front().record;
    const auto count = static_cast<double>(element_count(record.placement.logical_shape()));
    const std::size_t dimensions = record.placement.logical_shape().size();
    NoiseSpread& spread = dimensions > 1 ? kind.of_others : kind.of_vectors;
    spread.squared.add(noise->mean_squared, noise->mean_fourth, noise->passes);
    moved += noise->mean_squared > 0.0 ? 1.0 : 0.0;
    const double independent = noise->mean_squared * record.norm * record.norm / count;
    if (noise->along_squared && independent > 0.0) {
      spread.along.add(*noise->along_squared / independent);
    }
    if (is_scale(match.id) && record.max_abs > 0.0) {
      double& relative = scales_[of_all_microbatches(match.id)];
      relative = std::max(relative, noise->max_abs / record.max_abs);
    }
  }
  moved_ = std::max(1.0, moved);
}

const TensorNoise* NoiseModel::find(const TensorId& id) const {
  const auto found = tensors_.find(id);
  return found == tensors_.end() ? nullptr : &found->second;
}

KindNoise NoiseModel::of_kind(const TensorId& id) const {
  const auto found = kinds_.find({id.step, id.kind, id.slot});
  return found == kinds_.end() ? KindNoise{} : found->second;
}

double NoiseModel::of_scale(const TensorId& id) const {
  const auto found = scales_.find(of_all_microbatches(id));
  return found == scales_.end() ? 0.0 : found->second;
}

const TensorNoise* NoiseModel::before_updates(const TensorId& id) const {
  if (!first_step_ || id.step <= *first_step_) {
    return nullptr;
  }
  TensorId first = id;
  first.step = *first_step_;
  return find(first);
}

double NoiseModel::inherited(const TensorId& id) const {
  const TensorNoise* const now = find(id);
  if (now == nullptr || !first_step_ || id.step <= *first_step_) {
    return 0.0;
  }
  const TensorNoise* const before = before_updates(id);
  return std::max(0.0, now->mean_squared - (before == nullptr ? 0.0 : before->mean_squared));
}

double NoiseModel::if_all_alike(std::int64_t step, const std::string& parameter) const {
  const auto found = if_all_alike_.find({step, parameter});
  return found == if_all_alike_.end() ? 0.0 : found->second;
}

}  // namespace ttrace
