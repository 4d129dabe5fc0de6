#include "analysis/checks/addend_check.h"

#include "analysis/align/module_path.h"
#include "analysis/checks/normalisation.h"
#include "analysis/checks/structure.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/sums/slices.h"
#include "trace/sums/squared.h"
#include "trace/sums/statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using Call = RankAddend::Call;

// p_i.
struct Replay {
  std::vector<double> sum;
  double terms = 0.0;  // squared
};

// Rows of x become what the gradient is multiplied by; nothing: it is summed as it is.
using Formula = std::optional<Normalisation>;

bool has_rows_of(const Values& values, std::size_t width) {
  return width > 0 && !values.shape.empty() &&
         values.shape.back() == static_cast<std::int64_t>(width);
}

void add_row(std::span<const double> gradient, std::span<const double> factors, Replay& replay) {
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const double term = factors.empty() ? gradient[i] : gradient[i] * factors[i];
    replay.sum[i] += term;
    replay.terms += term * term;
  }
}

// Returns nothing if the formula asks for inputs that were not recorded.
std::optional<Replay> replay(const RankAddend& addend, const Formula& formula) {
  const std::size_t width = addend.found.size();
  Replay result{std::vector<double>(width), 0.0};
  std::vector<double> factors;
  for (const Call& call : addend.calls) {
    if (formula && !call.input) {
      return std::nullopt;
    }
    const std::vector<double>& gradient = call.gradient.data;
    for (std::size_t at = 0; at < gradient.size(); at += width) {
      if (formula) {
        const double* row = call.input->data.data() + at;
        factors.assign(row, row + width);
        formula->apply(factors);
      }
      add_row(std::span(gradient).subspan(at, width), factors, result);
    }
  }
  return result;
}

// ||sum p - f||; nothing if the sum and f have different shapes.
std::optional<double> apart(const std::vector<RankAddend>& addends,
                            const std::vector<Replay>& replays,
                            const MergeResult& wide) {
  std::vector<Record> records;
  records.reserve(addends.size());
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    Record record = *addends[i].shard->record;
    record.type = ElementType::kF64;
    record.placement.scale = 1.0;
    records.push_back(std::move(record));
    shards.push_back(
        {addends[i].shard->rank, &records.back(), std::as_bytes(std::span(replays[i].sum))});
  }
  const MergeResult sum = merge(shards);
  if (!sum.has_tensor() || sum.shape != wide.shape) {
    return std::nullopt;
  }
  const double error = statistics_of(wide, sum).error_norm();
  return std::isfinite(error) ? std::optional(error) : std::nullopt;
}

struct Known {
  std::vector<Replay> replays;
  double rest = 0.0;  // d
};

// `enough`: a formula that leaves no more is not improved upon.
std::optional<Known> known_formula(const std::vector<RankAddend>& addends,
                                   const MergeResult& wide,
                                   double norm,
                                   double enough) {
  constexpr double kKnown = 0.01;  // of f
  std::vector<Formula> formulas = {std::nullopt};
  for (const Normalisation& each : known_normalisations()) {
    formulas.emplace_back(each);
  }
  std::optional<Known> best;
  for (const Formula& formula : formulas) {
    Known known;
    for (const RankAddend& addend : addends) {
      if (auto of_rank = replay(addend, formula)) {
        known.replays.push_back(*std::move(of_rank));
      }
    }
    if (known.replays.size() != addends.size()) {
      break;  // all further ones need inputs too
    }
    const auto rest = apart(addends, known.replays, wide);
    if (rest && *rest <= kKnown * norm && (!best || *rest < best->rest)) {
      known.rest = *rest;
      best = std::move(known);
    }
    if (best && best->rest <= enough) {
      break;
    }
  }
  return best;
}

// Sums over all addends; replicas count once.
double squared_terms(const std::vector<RankAddend>& addends, const std::vector<Replay>& replays) {
  double sum = 0.0;
  for (std::size_t i = 0; i < addends.size(); ++i) {
    const Placement& own = addends[i].shard->record->placement;
    const bool again =
        std::any_of(addends.begin(),
                    addends.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const RankAddend& other) { return other.shard->record->placement == own; });
    sum += again ? 0.0 : replays[i].terms;
  }
  return sum;
}

// The figures by which one addend is judged.
struct AddendError {
  int rank = 0;
  double norm = 0.0;   // ||p||
  double found = 0.0;  // ||c||
  double error = 0.0;  // ||c - p||
  double scale = 0.0;
  PartlyMeasured parts = {};   // of its square
  double by_chance = 1.0;      // share of right addends beyond their limit
  RatioLimit ratio = {};       // of error and scale
  double factor = 0.0;         // a
  double beside_factor = 0.0;  // ||c - (1 + a) p||
  // Variance of a ||p||^2, from the part of c that the factor does not explain.
  double own_noise = 0.0;
  double fourth = 0.0;  // sum p^4
};

AddendError error_of(const RankAddend& addend, const Replay& right) {
  const auto count = static_cast<std::int64_t>(addend.found.size());
  const SliceSums sums = sum_elements(
      ElementType::kF64, right.sum.data(), ElementType::kF64, addend.found.data(), count);
  AddendError result;
  result.rank = addend.shard->rank;
  result.norm = std::sqrt(sums.reference_squared);
  result.error = std::sqrt(sums.difference_squared);
  result.found = Values{{}, addend.found}.norm();
  result.factor =
      sums.reference_squared > 0.0 ? sums.along_reference / sums.reference_squared : 0.0;
  for (std::size_t i = 0; i < right.sum.size(); ++i) {
    const double p = right.sum[i];
    const double rest = addend.found[i] - (1.0 + result.factor) * p;
    if (std::isfinite(rest)) {
      result.beside_factor += rest * rest;
      result.own_noise += squared(rest * p);
      result.fourth += squared(p * p);
    }
  }
  result.beside_factor = std::sqrt(result.beside_factor);
  result.own_noise = std::sqrt(result.own_noise);
  return result;
}

SliceComparison part_of(const AddendError& judged) {
  SliceComparison part;
  part.where = "the addend of " + ranks_text(std::vector{judged.rank});
  part.ranks = {judged.rank};
  part.error = judged.error;
  part.scale = judged.scale;
  part.q = judged.error > 0.0 ? judged.error / judged.scale : 0.0;
  part.ratio = judged.ratio;
  part.bound = judged.ratio.value * judged.scale;
  part.is_addend = true;
  return part;
}

// Of the error: roundings of the elements are independent of one another, of what the native pass
// errs beyond them noise passes tell. `of_noise`: their degrees of freedom.
double freedom_of(const AddendError& judged, double of_noise) {
  const double squared_scale = squared(judged.scale);
  if (!(judged.fourth > 0.0) || !(squared_scale > 0.0)) {
    return of_noise;
  }
  const double elements = squared(squared(judged.norm)) / judged.fourth;
  return std::max(of_noise,
                  freedom_of_sum(judged.parts.measured / squared_scale, of_noise, elements));
}

// Requires: an addend that should not be zero.
FactorComparison factor_of(const AddendError& judged,
                           double native_factor,
                           const ErrorSpread& spread) {
  const double norm_squared = squared(judged.norm);
  // By what rounding errors of a norm of one, independent in all elements, move a.
  const double share = std::sqrt(judged.fourth) / (norm_squared * judged.norm);
  FactorComparison result;
  result.where = "the addend of " + ranks_text(std::vector{judged.rank});
  result.deviation = judged.factor;
  const double rounding = spread.factor_roundings * rounding_error(ElementType::kF32);
  result.scale =
      std::sqrt(squared(judged.scale * share) + squared(native_factor) + squared(rounding));
  result.least = spread.own_spread * judged.own_noise / norm_squared;
  result.ratio = ratio_limit(
      spread.kernel_factor_along, 1.0, judged.ratio.freedom_of_estimate, judged.ratio.by_chance);
  result.bound = std::max(result.ratio->value * result.scale, result.least);
  return result;
}

// Replaces `worst` by what is nearer to its bound.
void keep_worst(SliceComparison part, std::optional<SliceComparison>& worst) {
  if (!worst || part.error * worst->bound > worst->error * part.bound) {
    worst = std::move(part);
  }
}

void keep_worst(const std::optional<FactorComparison>& factor,
                std::optional<FactorComparison>& worst) {
  if (factor && (!worst || std::abs(factor->deviation) * worst->bound >
                               std::abs(worst->deviation) * factor->bound)) {
    worst = factor;
  }
}

// Some ranks' addends are multiples of what they should be, those of others are right.
std::optional<Hypothesis> claim_of(const std::vector<AddendError>& wrong, std::size_t addends) {
  constexpr double kLeft = 0.5;  // of the error, at most; as allowed_rest() of other explanations
  constexpr double kNearOne = 0.001;  // four digits of a factor hardly show such deviations
  const bool are_multiples = std::all_of(wrong.begin(), wrong.end(), [](const AddendError& each) {
    return each.beside_factor <= kLeft * each.error;
  });
  if (wrong.empty() || wrong.size() == addends || !are_multiples) {
    return std::nullopt;
  }
  std::string sentence;
  Hypothesis claim;
  double error = 0.0;
  double left = 0.0;
  for (const AddendError& each : wrong) {
    error += squared(each.error);
    left += squared(each.beside_factor);
    claim.named.ranks.push_back(each.rank);
    claim.named.factors.push_back(1.0 + each.factor);
    sentence += fmt::format("{}{}'s addend is {} x",
                            sentence.empty() ? "" : ", ",
                            ranks_text(std::vector{each.rank}),
                            std::abs(each.factor) < kNearOne ? near_one_text(each.factor)
                                                             : factor_text(1.0 + each.factor));
  }
  claim.signature = Signature::kWrongAddends;
  claim.sentence = sentence +
                   " what the rank's own rows give, computed again from its gradient of "
                   "the output; the other ranks' addends are right";
  claim.error = std::sqrt(error);
  claim.residual = std::sqrt(left);
  claim.coefficients = static_cast<double>(wrong.size());
  return claim;
}

}  // namespace

AddendCheck::AddendCheck(const Trace& candidate) : shards_(candidate), producers_(candidate) {}

// The record itself, or the output that the rank's module has taken.
const Shard* AddendCheck::input_of(int rank, const TensorId& id) const {
  if (const Shard* const own = shard_of(shards_.of(id), rank)) {
    return own;
  }
  const TensorId* const producer = producers_.of(id, rank);
  return producer == nullptr ? nullptr : shard_of(shards_.of(*producer), rank);
}

// Values of all calls of the parameter's module; nothing if the rank recorded no gradient of an
// output.
std::vector<RankAddend::Call> AddendCheck::calls_of(const TensorId& parameter,
                                                    int rank,
                                                    std::size_t width) const {
  TensorId id = parameter;
  id.path = module_of(parameter.path);
  id.slot = 0;
  std::vector<Call> calls;
  for (id.call = 0;; ++id.call) {
    id.kind = Kind::kGradOutput;
    const Shard* const gradient = shard_of(shards_.of(id), rank);
    if (gradient == nullptr) {
      return calls;
    }
    if (!has_elements(*gradient)) {
      return {};
    }
    Call call{local_values(*gradient), std::nullopt};
    if (!has_rows_of(call.gradient, width)) {
      return {};
    }
    id.kind = Kind::kInput;
    if (const Shard* const input = input_of(rank, id); input != nullptr && has_elements(*input)) {
      call.input = local_values(*input);
      if (!has_rows_of(*call.input, width) ||
          call.input->data.size() != call.gradient.data.size()) {
        call.input.reset();
      }
    }
    calls.push_back(std::move(call));
  }
}

std::optional<std::vector<RankAddend>> AddendCheck::addends_of(const Match& match) const {
  const Placement& first = match.candidate.front().record->placement;
  if (match.id.kind != Kind::kParamGrad || first.partial_count < 2 || first.flat ||
      first.dims.size() != 1 || match.id.path.find('.') == std::string::npos) {
    return std::nullopt;
  }
  std::vector<RankAddend> addends;
  if (!std::ranges::all_of(match.candidate, has_elements)) {
    return std::nullopt;
  }
  for (const Shard& shard : match.candidate) {
    RankAddend addend{&shard, local_values(shard).data, {}};
    addend.calls = calls_of(match.id, shard.rank, addend.found.size());
    if (addend.calls.empty()) {
      return std::nullopt;
    }
    addends.push_back(std::move(addend));
  }
  return addends;
}

void AddendCheck::compare(const Match& match,
                          const MergeResult& wide,
                          const ErrorSpread& spread,
                          OperatorResidual& residual) const {
  // Of a rounding of the sum. A formula that leaves less ends the search: this saves computing
  // every norm again by a dozen formulas, and widens no bound. The best of all formulas gave the
  // same.
  constexpr double kNegligible = 1.0 / 16;
  const auto addends = addends_of(match);
  if (!addends) {
    return;
  }
  const double unit = unit_of(match.candidate.front().record->type);
  const auto known =
      known_formula(*addends, wide, residual.norm, kNegligible * unit * residual.norm);
  if (!known) {
    return;
  }
  const double terms = squared_terms(*addends, known->replays);
  const double whole = squared(residual.native) + squared(known->rest);
  const double native = std::max(0.0, squared(residual.native) - 2.0 * squared(residual.rounding)) +
                        squared(known->rest);
  residual.slice.reset();
  residual.in_noise.reset();
  std::vector<AddendError> wrong;
  for (std::size_t i = 0; i < addends->size(); ++i) {
    const Replay& right = known->replays[i];
    AddendError error = error_of((*addends)[i], right);
    const double share = terms > 0.0 ? right.terms / terms : 0.0;
    const double rounding = squared(unit * std::max(error.norm, error.found));
    error.scale = std::sqrt(rounding + share * native);
    const double freedom = std::min(spread.freedom, static_cast<double>(right.sum.size()));
    error.parts = {rounding, share * native, share * whole, freedom};
    error.by_chance = spread.by_chance / static_cast<double>(addends->size());
    error.ratio =
        ratio_limit(spread.kernel_factor, freedom_of(error, freedom), error.parts, error.by_chance);
    SliceComparison of_error = part_of(error);
    const auto of_factor =
        error.fourth > 0.0 && std::ssize(right.sum) > 1  // one number's factor is its own error
            ? std::optional(factor_of(error, residual.native_factor - 1.0, spread))
            : std::nullopt;
    if (of_error.beyond() || (of_factor && of_factor->beyond())) {
      wrong.push_back(error);
    }
    keep_worst(std::move(of_error), residual.slice);
    keep_worst(of_factor, residual.in_noise);
  }
  residual.claim = claim_of(wrong, addends->size());
}

}  // namespace ttrace
