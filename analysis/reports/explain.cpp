#include "analysis/reports/explain.h"

#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>

namespace ttrace {
namespace {

constexpr std::size_t kNamed = 3;  // tensors of each relation

double share_of(double value, double bound) {
  if (value == 0.0) {
    return 0.0;
  }
  return bound == 0.0 ? std::numeric_limits<double>::infinity() : std::abs(value) / bound;
}

// What a bound on numbers does not decide.
bool is_structural(Symptom symptom) {
  switch (symptom) {
    case Symptom::kNone:
    case Symptom::kNotEqual:
    case Symptom::kIllegalFlip:
    case Symptom::kFactor:
    case Symptom::kSlice:
    case Symptom::kOutOfBound:
    case Symptom::kOperator:
    case Symptom::kNotExact:
    case Symptom::kTooAccurate:
    case Symptom::kTooCoarse:
      return false;
    default:
      return true;
  }
}

// A wrong operator is told first, but what is wrong with the structure decides the tier.
bool breaks_structure(const TensorVerdict& tensor) {
  return is_structural(tensor.symptom) ||
         (tensor.status == Status::kDiverged && tensor.tier == Tier::kT0 &&
          tensor.origin != BoundOrigin::kExact);
}

BoundCheck numbers(CheckKind kind, Tier tier, double value, double bound, std::string source) {
  BoundCheck check;
  check.kind = kind;
  check.tier = tier;
  check.value = value;
  check.bound = bound;
  check.share = share_of(value, bound);
  check.holds = std::abs(value) <= bound;
  check.source = std::move(source);
  return check;
}

BoundCheck part(CheckKind kind, Tier tier, const SliceComparison& slice, std::string source) {
  BoundCheck check = numbers(kind, tier, slice.error, slice.bound, std::move(source));
  check.where = slice.where;
  check.ranks = slice.ranks;
  return check;
}

void add_operator_checks(const OperatorResidual& residual, std::vector<BoundCheck>& checks) {
  checks.push_back(numbers(
      CheckKind::kOperator, Tier::kT1, residual.residual(), residual.limit, "forced passes"));
  if (residual.slice) {
    checks.push_back(part(CheckKind::kOperatorSlice,
                          Tier::kT1,
                          *residual.slice,
                          residual.slice->is_addend ? "the rank's own rows, computed again"
                                                    : "what forced passes differ by in the part"));
  }
  if (residual.in_noise) {
    checks.push_back(numbers(CheckKind::kOperatorFactor,
                             Tier::kT1,
                             residual.in_noise->deviation,
                             residual.in_noise->bound,
                             residual.in_noise->where.empty()
                                 ? "the factor between forced passes"
                                 : "the rank's own rows, computed again"));
    checks.back().where = residual.in_noise->where;
  }
}

void add_value_checks(const TensorVerdict& tensor, std::vector<BoundCheck>& checks) {
  const Comparison& comparison = *tensor.comparison;
  if (comparison.asked) {
    checks.push_back(numbers(
        CheckKind::kTolerance, Tier::kT2, comparison.asked->worst, 1.0, tensor.bound_source));
    return;
  }
  const bool exact = tensor.origin == BoundOrigin::kExact;
  if (tensor.status == Status::kNotJudged || (exact && is_structural(tensor.symptom))) {
    return;  // the comparison is not with the reference, or its bound is not on the error
  }
  BoundCheck whole = numbers(exact ? CheckKind::kExact : CheckKind::kWhole,
                             tensor.tier == Tier::kT3 ? Tier::kT3
                             : exact                  ? Tier::kT0
                                                      : Tier::kT2,
                             comparison.error,
                             comparison.bound,
                             tensor.bound_source);
  if (comparison.bound == 0.0 && comparison.max_difference > 0.0) {
    whole.share =
        std::numeric_limits<double>::infinity();  // squares of tiny differences may vanish
    whole.holds = false;
  }
  checks.push_back(std::move(whole));
  if (comparison.slice) {
    checks.push_back(
        part(CheckKind::kSlice, Tier::kT2, *comparison.slice, "noise passes, in the part"));
  }
  if (comparison.factor_in_noise) {
    checks.push_back(numbers(CheckKind::kFactor,
                             Tier::kT2,
                             comparison.factor_in_noise->deviation,
                             comparison.factor_in_noise->bound,
                             "noise passes, along the reference"));
  }
}

// From both sides: 1 is as inaccurate as the reference.
BoundCheck golden_check(const GoldenComparison& golden) {
  const bool low = golden.is_too_accurate();
  BoundCheck check = numbers(CheckKind::kGolden,
                             Tier::kGolden,
                             low ? golden.rho() : golden.candidate_error / golden.scale,
                             low ? golden.least : golden.limit,
                             low ? "golden pass, the least that round-off leaves"
                                 : "golden pass, the most that round-off explains");
  check.holds = golden.is_within();
  if (low) {
    check.share =
        golden.rho() > 0.0 ? golden.least / golden.rho() : std::numeric_limits<double>::infinity();
  }
  return check;
}

// A ratio of two errors is near 1 wherever all is well: it is no distance from a bound.
bool is_nearness(const BoundCheck& check) {
  return check.kind != CheckKind::kGolden || !check.holds;
}

// Which check decided: what failed first in the tier of the finding; of a tensor that is no
// finding, what came nearest to its bound. An inherited one is none because its operators are
// right.
BoundCheck* ruling(const TensorVerdict& tensor, std::vector<BoundCheck>& checks) {
  BoundCheck* found = nullptr;
  if (tensor.is_harmless_scale()) {
    return found;  // beyond its bounds, which is made good by its codes
  }
  const bool judged = tensor.status == Status::kWithin || tensor.status == Status::kInherited;
  for (BoundCheck& check : checks) {
    if (judged) {
      const bool counts =
          (tensor.status == Status::kWithin && is_nearness(check)) || check.tier == Tier::kT1;
      found = counts && (found == nullptr || check.share > found->share) ? &check : found;
    } else if (!check.holds && check.tier == tensor.tier) {
      return &check;
    }
  }
  return found;
}

double largest_share(const TensorVerdict& tensor) {
  double largest = 0.0;
  if (tensor.is_harmless_scale()) {
    return largest;
  }
  for (const BoundCheck& check : checks_of(tensor)) {
    largest = is_nearness(check) ? std::max(largest, check.share) : largest;
  }
  return largest;
}

void add_operator_steps(const OperatorResidual& residual, std::vector<ArithmeticStep>& steps) {
  steps.push_back({CheckKind::kOperator,
                   "scale",
                   "sqrt(max(||n - f||, u ||c||)^2 + e^2)",
                   "sqrt(max(" + long_number(residual.native) + ", " +
                       long_number(residual.rounding) + ")^2 + " + long_number(residual.structure) +
                       "^2)",
                   residual.scale()});
  steps.push_back({CheckKind::kOperator,
                   "R",
                   "||c - f|| / scale",
                   long_number(residual.error) + " / " + long_number(residual.scale()),
                   residual.residual()});
}

void add_part_steps(CheckKind kind,
                    const SliceComparison& slice,
                    std::vector<ArithmeticStep>& steps) {
  if (!(slice.error > 0.0) || !(slice.q > 0.0) || !std::isfinite(slice.q)) {
    return;  // nothing differs there
  }
  const double scale = slice.error / slice.q;
  const std::string difference = slice.is_addend             ? "||c - p||"
                                 : kind == CheckKind::kSlice ? "||c - r||"
                                                             : "||c - f||";
  steps.push_back({kind,
                   kind == CheckKind::kSlice ? "Q there" : "R there",
                   difference + " there / scale there",
                   long_number(slice.error) + " / " + long_number(scale),
                   slice.q});
  steps.push_back({kind,
                   "bound there",
                   long_number(slice.bound / scale) + " x scale there",
                   long_number(slice.bound / scale) + " x " + long_number(scale),
                   slice.bound});
}

void add_factor_steps(CheckKind kind,
                      const FactorComparison& factor,
                      std::vector<ArithmeticStep>& steps) {
  const bool of_operator = kind == CheckKind::kOperatorFactor;
  steps.push_back({kind,
                   "a",
                   !factor.where.empty() ? "<c - p, p> / <p, p>"
                   : of_operator         ? "<c - f, f> / <f, f>"
                                         : "<c - r, r> / <r, r>",
                   "",
                   factor.deviation});
  steps.push_back({kind,
                   "bound of |a|",
                   long_number(factor.bound / factor.scale) + " x scale of a",
                   long_number(factor.bound / factor.scale) + " x " + long_number(factor.scale),
                   factor.bound});
}

// scale^2 with those of its terms that this tensor has.
ArithmeticStep squared_scale(const NoiseTerms& terms) {
  std::string formula = "s^2";
  std::string numbers = long_number(terms.mean_squared);
  if (terms.growth != 1.0) {
    formula += " x (what micro-batches err alike)";
    numbers += " x " + long_number(terms.growth);
  }
  const auto add = [&](double term, const char* name) {
    if (term != 0.0) {
      formula += std::string(" + ") + name;
      numbers += " + " + long_number(term);
    }
  };
  add(terms.optimizer, "(flips of an update's sign)");
  add(terms.inherited, "(inherited from updated parameters)");
  add(terms.of_scales, "(moves of the scale)");
  add(terms.of_scalars, "(a rounding of |r|)^2");
  if (terms.least != 0.0) {
    formula = "max(" + formula + ", (a rounding of the multiple)^2)";
    numbers = "max(" + numbers + ", " + long_number(terms.least) + ")";
  }
  add(terms.flips, "(2 ulp(max |r|))^2");
  return {
      CheckKind::kWhole, "scale^2", formula, numbers, terms.squared_without_flips() + terms.flips};
}

void add_noise_steps(const Comparison& comparison, std::vector<ArithmeticStep>& steps) {
  const NoiseTerms& terms = *comparison.noise_terms;
  const double scale = std::sqrt(terms.squared_without_flips() + terms.flips);
  steps.push_back(
      {CheckKind::kWhole,
       "s^2",
       "mean of ||m - r||^2 over " + counted(terms.passes, "noise pass", "noise passes"),
       "",
       terms.mean_squared});
  steps.push_back(squared_scale(terms));
  steps.push_back({CheckKind::kWhole,
                   "bound",
                   "max(limit x scale, " + long_number(terms.pass_margin) + " x the largest pass)",
                   "max(" + long_number(terms.limit) + " x " + long_number(scale) + ", " +
                       long_number(terms.pass_margin) + " x " + long_number(terms.largest_pass) +
                       ")",
                   comparison.bound});
  if (comparison.q) {
    steps.push_back({CheckKind::kWhole,
                     "Q",
                     "||c - r|| / scale",
                     long_number(comparison.error) + " / " + long_number(scale),
                     *comparison.q});
  }
}

void add_value_steps(const Comparison& comparison, std::vector<ArithmeticStep>& steps) {
  if (comparison.asked) {
    steps.push_back({CheckKind::kTolerance,
                     "worst element",
                     "max |c - r| / (atol + rtol |r|)",
                     "",
                     comparison.asked->worst});
    return;
  }
  if (comparison.noise_terms) {
    add_noise_steps(comparison, steps);
  }
  if (comparison.default_terms) {
    const DefaultTerms& terms = *comparison.default_terms;
    steps.push_back({CheckKind::kWhole,
                     "bound",
                     "factor of the class x a rounding x ||r||",
                     long_number(terms.factor) + " x " + long_number(terms.unit) + " x " +
                         long_number(comparison.reference_norm),
                     comparison.bound});
  }
  if (comparison.slice) {
    add_part_steps(CheckKind::kSlice, *comparison.slice, steps);
  }
  if (comparison.factor_in_noise) {
    add_factor_steps(CheckKind::kFactor, *comparison.factor_in_noise, steps);
  }
}

// Only where the comparison is the one that its bound is for.
bool has_value_check(const std::vector<BoundCheck>& checks) {
  return std::any_of(checks.begin(), checks.end(), [](const BoundCheck& check) {
    return check.kind == CheckKind::kWhole || check.kind == CheckKind::kTolerance;
  });
}

std::vector<ArithmeticStep> arithmetic_of(const TensorVerdict& tensor,
                                          const std::vector<BoundCheck>& checks) {
  std::vector<ArithmeticStep> steps;
  if (tensor.residual) {
    add_operator_steps(*tensor.residual, steps);
    if (tensor.residual->slice) {
      add_part_steps(CheckKind::kOperatorSlice, *tensor.residual->slice, steps);
    }
    if (tensor.residual->in_noise) {
      add_factor_steps(CheckKind::kOperatorFactor, *tensor.residual->in_noise, steps);
    }
  }
  if (has_value_check(checks)) {
    add_value_steps(*tensor.comparison, steps);
  }
  if (tensor.golden) {
    const GoldenComparison& golden = *tensor.golden;
    steps.push_back(
        {CheckKind::kGolden,
         "rho",
         "||c - g|| / ||r - g||",
         long_number(golden.candidate_error) + " / " + long_number(golden.reference_error),
         golden.rho()});
  }
  return steps;
}

std::vector<SmallestSeen> smallest_seen(const TensorVerdict& tensor,
                                        const std::vector<BoundCheck>& checks) {
  std::vector<SmallestSeen> seen;
  if (!tensor.comparison || tensor.comparison->asked) {
    return seen;
  }
  const double norm = tensor.comparison->candidate_norm;
  for (const BoundCheck& check : checks) {
    double relative = 0.0;
    switch (check.kind) {
      case CheckKind::kWhole:
        relative = tensor.comparison->detectable;
        break;
      case CheckKind::kSlice:
        relative = check.bound / tensor.comparison->reference_norm;
        break;
      case CheckKind::kOperator:
        relative = check.bound * tensor.residual->scale() / norm;
        break;
      case CheckKind::kOperatorSlice:
        relative = check.bound / norm;
        break;
      case CheckKind::kFactor:
      case CheckKind::kOperatorFactor:
        relative = check.bound;
        break;
      default:
        continue;
    }
    if (std::isfinite(relative) && relative > 0.0) {
      seen.push_back({check.kind, relative, check.where});
    }
  }
  return seen;
}

// Which of the tensors before `index` may have led to it: those of its micro-batch; of a tensor of
// the whole step those of the same parameter, else those of the whole step.
std::vector<std::size_t> related_before(std::span<const TensorVerdict> tensors, std::size_t index) {
  const TensorId& id = tensors[index].id;
  const auto before = [&](const auto& is_related) {
    std::vector<std::size_t> found;
    for (std::size_t i = index; i-- > 0;) {
      if (is_related(tensors[i].id)) {
        found.push_back(i);
      }
    }
    return found;
  };
  if (id.microbatch != kNoMicrobatch) {
    return before([&](const TensorId& other) {
      return other.step == id.step && other.microbatch == id.microbatch;
    });
  }
  std::vector<std::size_t> related =
      before([&](const TensorId& other) { return other.step == id.step && other.path == id.path; });
  if (related.empty()) {
    related = before([&](const TensorId& other) {
      return other.step == id.step && other.microbatch == kNoMicrobatch;
    });
  }
  return related;
}

// Collects tensors before one, each once, with how they relate to it.
class UpstreamList {
 public:
  explicit UpstreamList(std::span<const TensorVerdict> tensors) : tensors_(tensors) {}

  void add(std::size_t index, const std::string& relation) {
    const auto known = std::find(indices_.begin(), indices_.end(), index);
    if (known != indices_.end()) {
      list_[static_cast<std::size_t>(known - indices_.begin())].relation += ", " + relation;
      return;
    }
    const TensorVerdict& tensor = tensors_[index];
    indices_.push_back(index);
    list_.push_back({to_string(tensor.id), tensor.status, largest_share(tensor), relation});
  }
  [[nodiscard]] std::vector<Upstream> take() { return std::move(list_); }

 private:
  std::span<const TensorVerdict> tensors_;
  std::vector<std::size_t> indices_;
  std::vector<Upstream> list_;
};

std::vector<std::size_t> first_few(std::vector<std::size_t> indices) {
  indices.resize(std::min(indices.size(), kNamed));
  return indices;
}

// Findings before it, nearest first: related ones, or where none of these is one, any.
std::vector<std::size_t> wrong_ones(std::span<const TensorVerdict> tensors,
                                    std::size_t index,
                                    const std::vector<std::size_t>& related) {
  const auto is_wrong = [&](std::size_t i) { return tensors[i].is_finding(); };
  std::vector<std::size_t> wrong;
  std::copy_if(related.begin(), related.end(), std::back_inserter(wrong), is_wrong);
  for (std::size_t i = wrong.empty() ? index : 0; i-- > 0 && wrong.size() < kNamed;) {
    if (is_wrong(i)) {
      wrong.push_back(i);
    }
  }
  return first_few(std::move(wrong));
}

// Of the related ones that are no findings, those nearest to their bounds, nearest first.
std::vector<std::size_t> strained_ones(std::span<const TensorVerdict> tensors,
                                       const std::vector<std::size_t>& related) {
  std::vector<std::pair<double, std::size_t>> by_share;
  for (const std::size_t i : related) {
    if (!tensors[i].is_finding()) {
      if (const double share = largest_share(tensors[i]); share > 0.0) {
        by_share.emplace_back(-share, i);
      }
    }
  }
  std::stable_sort(by_share.begin(), by_share.end(), [](const auto& left, const auto& right) {
    return left.first < right.first;
  });
  std::vector<std::size_t> strained;
  for (const auto& [share, i] : by_share) {
    strained.push_back(i);
  }
  return first_few(std::move(strained));
}

std::vector<Upstream> upstream_of(const Report& report, std::size_t index) {
  const std::span<const TensorVerdict> tensors = report.tensors;
  const std::vector<std::size_t> related = related_before(tensors, index);
  UpstreamList list(tensors);
  if (report.first_divergence && *report.first_divergence < index) {
    list.add(*report.first_divergence, "first divergence");
  }
  for (const std::size_t i : wrong_ones(tensors, index, related)) {
    list.add(i, "wrong");
  }
  for (const std::size_t i : strained_ones(tensors, related)) {
    list.add(i, "nearest to its bound");
  }
  for (const std::size_t i : first_few(related)) {
    list.add(i, "just before");
  }
  return list.take();
}

std::string within_sentence(const TensorVerdict& tensor, const std::vector<BoundCheck>& checks) {
  if (tensor.is_harmless_scale()) {
    return "within bound: another scale than the reference's, but a power of two times it, and the "
           "operand is within its bound: codes keep their bits, and what they stand for is the "
           "same";
  }
  const auto rules = std::find_if(
      checks.begin(), checks.end(), [](const BoundCheck& check) { return check.rules; });
  if (tensor.comparison && tensor.comparison->different == 0) {
    return "within bound: equal in every element";
  }
  if (rules == checks.end() || rules->share == 0.0) {
    return "within bound: nothing is wrong with it";
  }
  return "within bound: at most " + short_number(rules->share) + " of any bound that applies";
}

std::string inherited_sentence(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  std::string text = "inherited: " + short_number(largest_share(tensor)) +
                     "x what round-off explains, but its own operators are right (R " +
                     short_number(tensor.residual->residual()) + ", limit " +
                     short_number(tensor.residual->limit) + ")";
  const auto source = std::find_if(
      explanation.upstream.begin(), explanation.upstream.end(), [](const Upstream& before) {
        return before.relation.find("wrong") != std::string::npos;
      });
  return text + (source == explanation.upstream.end()
                     ? ", and no tensor before it is a finding: roundings that added up"
                     : "; it comes with its inputs, from " + source->id);
}

std::string finding_sentence(const Explanation& explanation, const Report& report) {
  const TensorVerdict& tensor = explanation.tensor;
  if (tensor.allowed) {
    return "would be a finding, but is allowed: " + tensor.cause;
  }
  if (explanation.is_first_divergence) {
    return "DIVERGED, the first divergence: " + tensor.cause;
  }
  return "DIVERGED, after the first divergence " +
         to_string(report.tensors[*report.first_divergence].id) + ": " + tensor.cause;
}

// ||c - r|| <= (1 + rho) ||r - g||: what is as accurate as the reference cannot be farther from it
// than that, so a bound that this breaks was too small.
std::string noise_sentence(const TensorVerdict& tensor) {
  constexpr double kAsAccurate = 2.0;
  const bool beyond_noise = tensor.comparison && tensor.origin == BoundOrigin::kNoise &&
                            tensor.comparison->error > tensor.comparison->bound;
  if (!tensor.golden || !tensor.golden->is_within() || tensor.golden->rho() > kAsAccurate ||
      !beyond_noise) {
    return "";
  }
  return "; against FP64 it errs " + short_number(tensor.golden->rho()) +
         "x as much as the reference, which is as its precision makes it: noise passes moved this "
         "tensor too little, and the bound that follows from them is too small here";
}

// Requires: everything else is filled in.
std::string sentence_of(const Explanation& explanation, const Report& report) {
  switch (explanation.tensor.status) {
    case Status::kWithin:
      return within_sentence(explanation.tensor, explanation.checks);
    case Status::kInherited:
      return inherited_sentence(explanation);
    case Status::kIncomplete:
    case Status::kBehindFlip:
      return "not judged: " + explanation.tensor.cause;
    case Status::kNotJudged:
      return "not judged: with dyadic inputs only what the reference computes without a rounding "
             "is";
    default:
      return finding_sentence(explanation, report);
  }
}

}  // namespace

std::string_view name_of(CheckKind kind) {
  switch (kind) {
    case CheckKind::kStructure:
      return "structure";
    case CheckKind::kExact:
      return "exact";
    case CheckKind::kOperator:
      return "operator";
    case CheckKind::kOperatorSlice:
      return "operator_slice";
    case CheckKind::kOperatorFactor:
      return "operator_factor";
    case CheckKind::kTolerance:
      return "tolerance";
    case CheckKind::kFlips:
      return "flips";
    case CheckKind::kWhole:
      return "whole";
    case CheckKind::kSlice:
      return "slice";
    case CheckKind::kFactor:
      return "factor";
    case CheckKind::kGolden:
      return "golden";
  }
  return "";
}

std::vector<BoundCheck> checks_of(const TensorVerdict& tensor) {
  std::vector<BoundCheck> checks;
  if (tensor.status == Status::kIncomplete) {
    return checks;
  }
  BoundCheck structure;
  structure.holds = !breaks_structure(tensor);
  structure.share = structure.holds ? 0.0 : std::numeric_limits<double>::infinity();
  structure.source = is_structural(tensor.symptom) ? tensor.bound_source : "exact (structure)";
  checks.push_back(structure);
  if (tensor.residual) {
    add_operator_checks(*tensor.residual, checks);
  }
  if (tensor.flips) {
    checks.push_back(numbers(CheckKind::kFlips,
                             Tier::kT2,
                             tensor.flips->largest_move,
                             tensor.flips->bound,
                             tensor.bound_source));
    checks.back().holds = tensor.flips->illegal == 0;
  }
  if (tensor.comparison) {
    add_value_checks(tensor, checks);
  }
  if (tensor.golden && tensor.golden->limit > 0.0) {
    checks.push_back(golden_check(*tensor.golden));
  }
  return checks;
}

Explanation explain(const Report& report, std::size_t index) {
  Explanation explanation;
  explanation.tensor = report.tensors[index];
  explanation.is_first_divergence = report.first_divergence == index;
  explanation.checks = checks_of(explanation.tensor);
  if (BoundCheck* rules = ruling(explanation.tensor, explanation.checks)) {
    rules->rules = true;
  }
  explanation.arithmetic = arithmetic_of(explanation.tensor, explanation.checks);
  if (explanation.is_first_divergence) {
    explanation.diagnosis = report.diagnosis;
    explanation.where_to_look = report.where_to_look;
  }
  for (const Root& root : report.further_roots) {
    if (root.tensor == index) {
      explanation.diagnosis = root.diagnosis;
    }
  }
  explanation.before = index;
  explanation.wrong_before = static_cast<std::size_t>(
      std::count_if(report.tensors.begin(),
                    report.tensors.begin() + static_cast<std::ptrdiff_t>(index),
                    [](const TensorVerdict& tensor) { return tensor.is_finding(); }));
  explanation.upstream = upstream_of(report, index);
  explanation.smallest_seen = smallest_seen(explanation.tensor, explanation.checks);
  explanation.sentence = sentence_of(explanation, report) + noise_sentence(explanation.tensor);
  return explanation;
}

int exit_code(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  if (tensor.is_finding()) {
    return 1;
  }
  return tensor.status == Status::kIncomplete || tensor.status == Status::kBehindFlip ||
                 tensor.status == Status::kNotJudged
             ? 2
             : 0;
}

}  // namespace ttrace
