#include "analysis/findings/report.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ttrace {
namespace {

// What counts the tensors of each status, and of each origin of bounds, by its number.
constexpr std::array kOfStatus = {&Counts::within_bound,
                                  &Counts::out_of_bound,
                                  &Counts::missing_in_candidate,
                                  &Counts::missing_in_reference,
                                  &Counts::incomplete,
                                  &Counts::behind_flip,
                                  &Counts::inherited,
                                  &Counts::not_judged};
constexpr std::array kOfOrigin = {&Counts::bounds_exact,
                                  &Counts::bounds_from_noise,
                                  &Counts::bounds_class_default,
                                  &Counts::bounds_asked};
static_assert(kOfStatus.size() == static_cast<std::size_t>(Status::kNotJudged) + 1);
static_assert(kOfOrigin.size() == static_cast<std::size_t>(BoundOrigin::kAsked) + 1);

// Whether what the model computes there was compared by its size. Integers that it is given say
// nothing of what it computes.
bool is_of_forward(const TensorVerdict& tensor) {
  return (tensor.id.kind == Kind::kInput || tensor.id.kind == Kind::kOutput ||
          tensor.id.kind == Kind::kLoss) &&
         (tensor.find(Question::kWhole) != nullptr ||
          tensor.find(Question::kTolerance) != nullptr ||
          tensor.find(Question::kDyadic) != nullptr);
}

void count_status(const TensorVerdict& tensor, Counts& counts) {
  const Status status = tensor.status();
  counts.judged += is_answered(tensor) ? 1 : 0;
  if (tensor.allowed()) {
    ++(status == Status::kDiverged ? counts.allowed_failed : counts.allowed_missing);
  } else {
    ++(counts.*kOfStatus.at(static_cast<std::size_t>(status)));
  }
}

void count_checks(const TensorVerdict& tensor, Counts& counts) {
  const Check* const operators = tensor.find(Question::kOperator);
  const auto count = [](bool is, std::size_t& number) { number += is ? 1 : 0; };
  const bool operator_wrong = tensor.fails(Question::kOperator) ||
                              tensor.fails(Question::kOperatorPart) ||
                              tensor.fails(Question::kOperatorFactor);
  const bool is_bounded =
      operators != nullptr && std::isfinite(operators->bound) && !tensor.has(Excuse::kNotFinite);
  count(is_bounded, counts.operators);
  count(operators != nullptr && !is_bounded, counts.operators_unbounded);
  count(operator_wrong && tensor.status() != Status::kWithin, counts.operators_wrong);
  count(tensor.tier() == Tier::kT3, counts.must_be_equal);
  count(tensor.has(Excuse::kRounds) && tensor.status() == Status::kNotJudged, counts.rounded);
  count(tensor.find(Question::kTooCoarse) != nullptr, counts.golden);
  count(tensor.fails(Question::kTooAccurate), counts.too_accurate);
  count(tensor.fails(Question::kTooCoarse), counts.too_coarse);
}

}  // namespace

std::size_t NoiseCoverage::untouched_tensors() const {
  std::size_t count = 0;
  for (const auto& [kind, of_kind] : untouched) {
    count += of_kind;
  }
  return count;
}

Counts Report::counts() const {
  Counts counts;
  counts.tensors = tensors.size();
  for (const TensorVerdict& tensor : tensors) {
    count_status(tensor, counts);
    ++(counts.*kOfOrigin.at(static_cast<std::size_t>(tensor.origin())));
    count_checks(tensor, counts);
  }
  return counts;
}

bool Report::undecided() const {
  return !diverged() &&
         std::any_of(tensors.begin(), tensors.end(), [](const TensorVerdict& tensor) {
           return tensor.status() == Status::kBehindFlip;
         });
}

std::string Report::why_not_judged() const {
  if (diverged() || partial()) {
    return "";
  }
  if (!other_data.empty()) {
    return other_data;
  }
  if (!undecided()) {
    if (std::ranges::none_of(tensors, is_answered)) {
      return "no tensor could be judged";
    }
    const auto is_judged_forward = [](const TensorVerdict& tensor) {
      return is_of_forward(tensor) && is_answered(tensor);
    };
    if (std::ranges::any_of(tensors, is_of_forward) &&
        std::ranges::none_of(tensors, is_judged_forward)) {
      return "no tensor of the forward could be judged";
    }
  }
  return unmet.empty() ? "" : "what --require asks for was not seen";
}

std::vector<Root> Report::roots() const {
  std::vector<Root> roots = further_roots;
  if (first_divergence) {
    roots.insert(roots.begin(), {*first_divergence, diagnosis, source});
  }
  return roots;
}

Root Report::root(std::size_t tensor) const {
  if (first_divergence == tensor) {
    return {tensor, diagnosis, source};
  }
  const auto found = std::ranges::find(further_roots, tensor, &Root::tensor);
  return found == further_roots.end() ? Root{tensor} : *found;
}

std::optional<RoutingTotals> Report::flips() const {
  std::optional<RoutingTotals> all;
  for (const TensorVerdict& tensor : tensors) {
    const Check* const routing = tensor.find(Question::kRouting);
    if (routing == nullptr) {
      continue;
    }
    all = all ? all : std::optional(RoutingTotals{});
    const auto flips = static_cast<std::int64_t>(routing->term(Term::kFlips));
    all->tokens += static_cast<std::int64_t>(routing->term(Term::kTokens));
    all->flips += flips;
    all->illegal += static_cast<std::int64_t>(routing->term(Term::kIllegal));
    // a / b > c / d without dividing by zero
    if (flips > 0 && routing->value * all->bound >= all->largest_move * routing->bound) {
      all->largest_move = routing->value;
      all->bound = routing->bound;
    }
  }
  return all;
}

}  // namespace ttrace
