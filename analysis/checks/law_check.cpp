#include "analysis/checks/law_check.h"

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/align/module_path.h"
#include "analysis/align/producers.h"
#include "analysis/align/values.h"
#include "analysis/bounds/gradient_factors.h"
#include "analysis/bounds/limits.h"
#include "analysis/checks/projected_tensors.h"
#include "analysis/checks/rank_sums.h"
#include "trace/base/kind.h"
#include "trace/merge/merge.h"
#include "trace/sums/squared.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

// y = x W^T + b in one call of a module.
struct Linear {
  TensorId output;
  TensorId input;  // what it took: a record of its own, or another module's output
  // What its products consumed of these: quantised ones where there are such.
  TensorId x;
  TensorId w;
  TensorId gy;
};

class Laws {
 public:
  Laws(const Trace& trace, std::span<const Law> reference)
      : vocabulary_(trace.manifest().roles),
        matches_(tensors_of(trace)),
        producers_(trace),
        sums_(trace),
        projected_(trace) {
    for (const Match& match : matches_) {
      by_id_.emplace(match.id, &match);
      if (match.id.kind == Kind::kParamGrad) {
        gradients_[{match.id.step, match.id.path}].push_back(match.id);
      }
    }
    for (const auto& [input, of_rank] : producers_) {
      if (!of_rank.empty()) {
        consumers_[of_rank.begin()->second].push_back(input);
      }
    }
    for (const Law& law : reference) {
      if (law.kind == LawKind::kReducedGradient) {
        factors_.emplace(law.result.step, law.factor);
      }
    }
    find_linears();
  }

  // `with_copies`: those of copies too, for which every copy is read.
  [[nodiscard]] std::vector<Law> all(bool with_copies) {
    std::vector<Law> laws;
    for (const Match& match : matches_) {
      if (auto law = law_of(match.id)) {
        laws.push_back(*std::move(law));
      }
      if (auto law = with_copies ? of_copies(match) : std::nullopt) {
        laws.push_back(*std::move(law));
      }
    }
    return laws;
  }

 private:
  [[nodiscard]] std::optional<Law> law_of(const TensorId& id) {
    switch (id.kind) {
      case Kind::kOutput:
        return linears_.contains(id) ? of_output(linears_.at(id)) : std::nullopt;
      case Kind::kGradInput:
      case Kind::kGradOutput:
        return of_input_gradient(id);
      case Kind::kParamGrad:
        return of_weight_gradient(id);
      case Kind::kMainGrad:
        return of_reduced_gradient(id);
      default:
        return vocabulary_.is_scalar(Role::kGradientNorm, id) ? of_gradient_norm(id) : std::nullopt;
    }
  }

  // Nothing where no part of the tensor is on two ranks.
  [[nodiscard]] static std::optional<Law> of_copies(const Match& match) {
    const std::vector<Shard>& shards = match.reference;
    const auto hold_the_same = [](const Shard& left, const Shard& right) {
      return left.record->placement == right.record->placement;
    };
    bool any = false;
    for (std::size_t i = 0; i < shards.size() && !any; ++i) {
      any = std::any_of(shards.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                        shards.end(),
                        [&](const Shard& other) { return hold_the_same(shards[i], other); });
    }
    if (!any || shards.front().record->undeclared) {
      return std::nullopt;
    }
    Law law{.kind = LawKind::kCopies, .result = match.id, .norm = shards.front().record->norm};
    for (const MergeFinding& finding : merge(shards).findings) {
      if (finding.defect == MergeDefect::kReplicasDisagree) {
        law.residual = std::max(law.residual, finding.difference);
        law.ranks = finding.ranks;
      }
    }
    return law;
  }

  const ProjectedTensor* find(const TensorId& id) { return projected_.find(id); }
  [[nodiscard]] std::span<const Shard> shards_of(const TensorId& id) const {
    return projected_.shards().of(id);
  }

  void find_linears() {
    for (const Match& match : matches_) {
      const TensorId& id = match.id;
      if (id.kind != Kind::kOutput || id.slot != 0 || id.recompute) {
        continue;
      }
      const ProjectedTensor* const weight = find(weight_id(id.step, id.path));
      if (weight == nullptr ||
          shards_of(weight_id(id.step, id.path)).front().record->placement.dims.size() != 2) {
        continue;
      }
      TensorId input = as_kind(id, Kind::kInput);
      if (const auto& of_rank = producers_.of(input); !of_rank.empty()) {
        input = of_rank.begin()->second;
      }
      const ProjectedTensor* const x = find(input);
      const ProjectedTensor* const y = find(id);
      if (x != nullptr && y != nullptr && x->rows == y->rows && x->columns == weight->columns &&
          y->columns == weight->rows) {
        const auto consumed = [&](int slot, const TensorId& plain) {
          TensorId operand = as_kind(id, Kind::kOperand);
          operand.slot = slot;
          return find(operand) == nullptr ? plain : operand;
        };
        linears_.emplace(id,
                         Linear{id,
                                input,
                                consumed(0, input),
                                consumed(kWeightSlot, weight_id(id.step, id.path)),
                                consumed(kGradientSlot, as_kind(id, Kind::kGradOutput))});
      }
    }
  }

  // Of the tensor's type, or that of one of its operands if this is coarser: a product rounds to
  // the type of what it multiplies, whatever its result is cast to (autocast with parameters in
  // F32). Codes of FP8 are exact operands.
  [[nodiscard]] double unit_among(const TensorId& id, std::span<const TensorId> operands) const {
    constexpr std::size_t kCode = 1;  // byte
    double unit = unit_of(shards_of(id).front().record->type);
    for (const TensorId& operand : operands) {
      const ElementType type = shards_of(operand).front().record->type;
      unit = element_size(type) > kCode ? std::max(unit, unit_of(type)) : unit;
    }
    return unit;
  }

  // What the operators and the sums on the way to the tensor round.
  [[nodiscard]] double rounding_of(const TensorId& id, double unit, double norm_squared) const {
    Match found;
    found.id = id;
    found.candidate = by_id_.at(id)->reference;
    const double own = squared(unit) * norm_squared;
    return own + sums_.squared_rounding(found, norm_squared, own);
  }

  // `rest`: the core of what the tensor should be, made from these `operands`.
  Law law_from(LawKind kind, const TensorId& id, std::span<const TensorId> operands, Matrix rest) {
    const ProjectedTensor& result = *find(id);
    add(result.projections.core, -1.0, rest);
    const double norm_squared = result.projections.squares;
    return {.kind = kind,
            .result = id,
            .residual = std::sqrt(squared_norm(rest)),
            .scale = std::sqrt(rounding_of(id, unit_among(id, operands), norm_squared)),
            .norm = std::sqrt(norm_squared)};
  }

  // A module may have a bias that it hands on instead of adding it.
  std::optional<Law> of_output(const Linear& linear) {
    const ProjectedTensor& x = *find(linear.x);
    const ProjectedTensor& y = *find(linear.output);
    const Matrix expected =
        product_of_columns(x.projections.left, find(linear.w)->projections.left);
    const std::array operands = {linear.x, linear.w};
    Law law = law_from(LawKind::kOutput, linear.output, operands, expected);
    const auto bias = merged_values(shards_of(bias_id(linear.output.step, linear.output.path)));
    if (bias && std::ssize(bias->data) == y.columns) {
      Law other = law_from(LawKind::kOutput,
                           linear.output,
                           operands,
                           with_bias(expected, projected_ones(y.rows), projected(bias->data)));
      if (other.residual < law.residual) {
        law = std::move(other);
      }
    }
    return law;
  }

  static Matrix with_bias(Matrix expected,
                          const std::vector<double>& rows,
                          const std::vector<double>& columns) {
    for (std::int64_t i = 0; i < kProjections; ++i) {
      std::transform(columns.begin(),
                     columns.end(),
                     expected.row(i),
                     expected.row(i),
                     [row = rows[static_cast<std::size_t>(i)]](double column, double sum) {
                       return sum + row * column;
                     });
    }
    return expected;
  }

  // The linears that took what the tensor is the gradient of; nothing where something else took it
  // too.
  [[nodiscard]] std::vector<const Linear*> takers_of(const TensorId& gradient) const {
    return gradient.kind == Kind::kGradInput ? takers_of_input(gradient)
                                             : takers_of_output(as_kind(gradient, Kind::kOutput));
  }

  [[nodiscard]] std::vector<const Linear*> takers_of_output(const TensorId& taken) const {
    std::vector<const Linear*> takers;
    const auto found = consumers_.find(taken);
    for (const TensorId& input :
         found == consumers_.end() ? std::vector<TensorId>() : found->second) {
      const auto linear = linears_.find(as_kind(input, Kind::kOutput));
      if (input.recompute) {
        continue;
      }
      if (linear == linears_.end() || linear->second.input != taken) {
        return {};
      }
      takers.push_back(&linear->second);
    }
    return takers;
  }

  // Inputs of several modules that are one tensor have one gradient, the sum over all of them.
  [[nodiscard]] std::vector<const Linear*> takers_of_input(const TensorId& gradient) const {
    const TensorId taken = as_kind(gradient, Kind::kInput);
    std::vector<const Linear*> takers;
    for (const auto& [output, linear] : linears_) {
      const TensorId own = as_kind(output, Kind::kInput);
      if (linear.input == own && same_microbatch(own, taken) && hold_the_same(own, taken) &&
          hold_the_same(as_kind(own, Kind::kGradInput), gradient)) {
        takers.push_back(&linear);
      }
    }
    return takers;
  }

  // Whether two records have the same bits on every rank.
  [[nodiscard]] bool hold_the_same(const TensorId& left, const TensorId& right) const {
    return left == right ||
           std::ranges::equal(
               shards_of(left), shards_of(right), [](const Shard& one, const Shard& other) {
                 return one.rank == other.rank && one.record->digest == other.record->digest;
               });
  }

  std::optional<Law> of_input_gradient(const TensorId& id) {
    const std::vector<const Linear*> takers = takers_of(id);
    const ProjectedTensor* const result = takers.empty() ? nullptr : find(id);
    if (result == nullptr) {
      return std::nullopt;
    }
    Matrix expected = zeros(kProjections, kProjections);
    std::vector<TensorId> operands;
    for (const Linear* const linear : takers) {
      const ProjectedTensor* const gradient = find(linear->gy);
      const ProjectedTensor& w = *find(linear->w);
      if (gradient == nullptr || gradient->rows != result->rows || gradient->columns != w.rows ||
          w.columns != result->columns) {
        return std::nullopt;
      }
      add(product(gradient->projections.left, w.projections.right), 1.0, expected);
      operands.insert(operands.end(), {linear->gy, linear->w});
    }
    return law_from(LawKind::kInputGradient, id, operands, std::move(expected));
  }

  std::optional<Law> of_weight_gradient(const TensorId& id) {
    const std::string module = module_of(id.path);
    const ProjectedTensor* const result = id.path == module + ".weight" ? find(id) : nullptr;
    if (result == nullptr) {
      return std::nullopt;
    }
    Matrix expected = zeros(kProjections, kProjections);
    std::vector<TensorId> operands;
    for (const auto& [output, linear] : linears_) {
      if (output.path != module || !same_microbatch(output, id)) {
        continue;
      }
      const ProjectedTensor* const gradient = find(linear.gy);
      const ProjectedTensor& x = *find(linear.x);
      if (gradient == nullptr || gradient->rows != x.rows || gradient->columns != result->rows ||
          x.columns != result->columns) {
        return std::nullopt;
      }
      add(product_of_rows(gradient->projections.right, x.projections.right), 1.0, expected);
      operands.insert(operands.end(), {linear.gy, linear.x});
    }
    return operands.empty() ? std::nullopt
                            : std::optional(law_from(
                                  LawKind::kWeightGradient, id, operands, std::move(expected)));
  }

  // The sum over micro-batches of a parameter's gradients; nothing where one is not known.
  std::optional<Matrix> sum_of_gradients(const TensorId& id) {
    const ProjectedTensor* const result = find(id);
    if (result == nullptr) {
      return std::nullopt;
    }
    std::optional<Matrix> sum;
    for (const TensorId& gradient : gradients_[{id.step, id.path}]) {
      const ProjectedTensor* const addend = find(gradient);
      if (addend == nullptr || addend->rows != result->rows || addend->columns != result->columns) {
        return std::nullopt;
      }
      sum = sum ? *std::move(sum) : zeros(kProjections, kProjections);
      add(addend->projections.core, 1.0, *sum);
    }
    return sum;
  }

  // What all reduced gradients are multiplied by, such as one over the number of tokens: what the
  // reference has, or the median, in which a gradient counts by its squared norm.
  double factor_of(std::int64_t step) {
    const auto known = factors_.find(step);
    if (known != factors_.end()) {
      return known->second;
    }
    std::vector<std::pair<double, double>> factors;  // and weights
    double all = 0.0;
    for (const Match& match : matches_) {
      if (match.id.kind == Kind::kMainGrad && match.id.step == step) {
        const auto sum = sum_of_gradients(match.id);
        const double squares = sum ? squared_norm(*sum) : 0.0;
        if (squares > 0.0) {
          const std::vector<double>& found = find(match.id)->projections.core.values;
          factors.emplace_back(
              std::inner_product(found.begin(), found.end(), sum->values.begin(), 0.0) / squares,
              squares);
          all += squares;
        }
      }
    }
    std::ranges::sort(factors);
    double factor = 1.0;
    double below = 0.0;
    for (const auto& [each, weight] : factors) {
      factor = each;
      below += weight;
      if (below >= all / 2.0) {
        break;
      }
    }
    return factors_[step] = without_rounding(factor);
  }

  std::optional<Law> of_reduced_gradient(const TensorId& id) {
    const auto sum = sum_of_gradients(id);
    if (!sum) {
      return std::nullopt;
    }
    const double factor = factor_of(id.step);
    Matrix expected = zeros(kProjections, kProjections);
    add(*sum, factor, expected);
    Law law = law_from(LawKind::kReducedGradient, id, {}, std::move(expected));
    law.factor = factor;
    return law;
  }

  // Programs add the squares up in F32, in an order of their own.
  std::optional<Law> of_gradient_norm(const TensorId& id) {
    constexpr double kOfNorm = 1e-3;
    const auto found = merged_values(shards_of(id));
    double squares = 0.0;
    for (const Match& match : matches_) {
      if (match.id.kind == Kind::kMainGrad && match.id.step == id.step) {
        const ProjectedTensor* const gradient = find(match.id);
        if (gradient == nullptr) {
          return std::nullopt;
        }
        squares += gradient->projections.squares;
      }
    }
    if (!found || found->data.size() != 1 || !(squares > 0.0)) {
      return std::nullopt;
    }
    const double norm = std::sqrt(squares);
    return Law{.kind = LawKind::kGradientNorm,
               .result = id,
               .residual = std::abs(found->data.front() - norm),
               .scale = kOfNorm * norm / kLawLimit,
               .norm = norm};
  }

  ModelVocabulary vocabulary_;
  std::vector<Match> matches_;
  RecordedProducers producers_;
  RankSums sums_;
  std::unordered_map<TensorId, const Match*, TensorIdHash> by_id_;
  std::unordered_map<TensorId, std::vector<TensorId>, TensorIdHash> consumers_;  // inputs
  std::map<TensorId, Linear> linears_;                                           // by output
  std::map<std::pair<std::int64_t, std::string>, std::vector<TensorId>> gradients_;
  std::map<std::int64_t, double> factors_;  // by step
  ProjectedTensors projected_;
};

LawsInForce in_force(std::vector<Law> laws, std::span<const Law> reference) {
  constexpr double kObeyed = 2.5;  // R; the largest of right runs was 1.7
  constexpr double kMore = 2.0;
  std::map<std::pair<LawKind, TensorId>, double> known;
  for (const Law& law : reference) {
    known.emplace(std::pair(law.kind, law.result), law.value());
  }
  LawsInForce result;
  for (Law& law : laws) {
    const auto found = known.find({law.kind, law.result});
    if (law.kind == LawKind::kCopies) {
      result.laws.push_back(std::move(law));
    } else if (found != known.end() && found->second <= kObeyed) {
      law.limit = kMore * std::max(1.0, found->second);
      result.laws.push_back(std::move(law));
    } else {
      ++result.left_out;
    }
  }
  return result;
}

}  // namespace

std::vector<Law> laws_of(const Trace& trace) {
  return Laws(trace, {}).all(true);
}

LawsInForce laws_of(const Trace& trace, std::span<const Law> reference) {
  return in_force(Laws(trace, reference).all(true), reference);
}

void check_laws(const Trace& reference, const Trace& candidate, std::span<TensorVerdict> tensors) {
  const std::vector<Law> obeyed = Laws(reference, {}).all(false);
  std::map<TensorId, Law> laws;
  for (Law& law : in_force(Laws(candidate, obeyed).all(false), obeyed).laws) {
    if (law.kind != LawKind::kGradientNorm) {
      laws.emplace(law.result, std::move(law));
    }
  }
  for (TensorVerdict& tensor : tensors) {
    const auto found = laws.find(tensor.id);
    if (found == laws.end()) {
      continue;
    }
    const Law& law = found->second;
    Check check;
    check.question = Question::kLaw;
    check.value = law.value();
    check.bound = law.limit;
    check.holds = law.holds();
    check.detectable = law.norm > 0.0 ? law.limit * law.scale / law.norm : 0.0;
    check.origin = BoundOrigin::kNoise;
    check.source = "the candidate's own records, and the reference's law";
    check.terms = {
        {Term::kError, law.residual}, {Term::kScale, law.scale}, {Term::kNorm, law.norm}};
    if (!check.holds) {
      check.sentence = sentence_of(law);
    }
    tensor.add(std::move(check));
  }
}

}  // namespace ttrace
