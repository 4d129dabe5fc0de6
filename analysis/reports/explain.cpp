#include "analysis/reports/explain.h"

#include "analysis/findings/wording.h"
#include "analysis/reports/finding_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

namespace ttrace {
namespace {

constexpr std::size_t kNamed = 3;  // tensors of each relation

// A golden pass that is not judged says nothing about the tensor, so it is left out; so is half of
// one that is.
bool is_shown(const Check& check) {
  return check.question == Question::kTooCoarse     ? std::isfinite(check.bound)
         : check.question == Question::kTooAccurate ? !check.holds
                                                    : true;
}

void add_operator_steps(const Check& check, std::vector<ArithmeticStep>& steps) {
  steps.push_back({Question::kOperator,
                   "scale",
                   "sqrt(max(||n - f||, u ||c||)^2 + e^2)",
                   fmt::format("sqrt(max({}, {})^2 + {}^2)",
                               long_number(check.term("native")),
                               long_number(check.term("rounding")),
                               long_number(check.term("structure"))),
                   check.term("scale")});
  steps.push_back({Question::kOperator,
                   "R",
                   "||c - f|| / scale",
                   long_number(check.term("error")) + " / " + long_number(check.term("scale")),
                   check.value});
}

void add_part_steps(const Check& part, std::vector<ArithmeticStep>& steps) {
  const double q = part.term("q");
  if (!(part.value > 0.0) || !(q > 0.0) || !std::isfinite(q)) {
    return;  // nothing differs there
  }
  const double scale = part.value / q;
  const bool of_noise = part.question == Question::kPart;
  const std::string difference = part.term("is_addend") > 0.0 ? "||c - p||"
                                 : of_noise                   ? "||c - r||"
                                                              : "||c - f||";
  steps.push_back({part.question,
                   of_noise ? "Q there" : "R there",
                   difference + " there / scale there",
                   long_number(part.value) + " / " + long_number(scale),
                   q});
  steps.push_back({part.question,
                   "bound there",
                   long_number(part.bound / scale) + " x scale there",
                   long_number(part.bound / scale) + " x " + long_number(scale),
                   part.bound});
}

void add_factor_steps(const Check& factor, std::vector<ArithmeticStep>& steps) {
  const bool of_operator = factor.question == Question::kOperatorFactor;
  const double scale = factor.term("scale");
  steps.push_back({factor.question,
                   "a",
                   !factor.place.where.empty() ? "<c - p, p> / <p, p>"
                   : of_operator               ? "<c - f, f> / <f, f>"
                                               : "<c - r, r> / <r, r>",
                   "",
                   factor.value});
  steps.push_back({factor.question,
                   "bound of |a|",
                   long_number(factor.bound / scale) + " x scale of a",
                   long_number(factor.bound / scale) + " x " + long_number(scale),
                   factor.bound});
}

// scale^2 with the terms that this tensor has.
ArithmeticStep squared_scale(const Check& whole) {
  std::string formula = "s^2";
  std::string numbers = long_number(whole.term("mean_squared"));
  if (whole.term("growth") != 1.0) {
    formula += " x (error that all micro-batches share)";
    numbers += " x " + long_number(whole.term("growth"));
  }
  const auto add = [&](std::string_view term, const char* name) {
    if (whole.term(term) != 0.0) {
      formula += std::string(" + ") + name;
      numbers += " + " + long_number(whole.term(term));
    }
  };
  add("optimizer", "(sign flips of updates)");
  add("inherited", "(inherited from updated parameters)");
  add("of_scales", "(changes of the scale)");
  add("of_scalars", "(a rounding of |r|)^2");
  if (whole.term("least") != 0.0) {
    formula = "max(" + formula + ", (a rounding of the multiple)^2)";
    numbers = "max(" + numbers + ", " + long_number(whole.term("least")) + ")";
  }
  add("flips", "(2 ulp(max |r|))^2");
  return {Question::kWhole, "scale^2", formula, numbers, std::pow(whole.term("noise_scale"), 2)};
}

void add_noise_steps(const Check& whole, std::vector<ArithmeticStep>& steps) {
  const double scale = whole.term("noise_scale");
  const std::string passes = "mean of ||m - r||^2 over " +
                             counted(static_cast<std::int64_t>(whole.term("passes")), "noise pass");
  const bool second = whole.term("irreproducible") > 0.0;
  steps.push_back({Question::kWhole,
                   "s^2",
                   second ? "max(" + passes + ", ||r' - r||^2 of a second run r')" : passes,
                   second ? "max(.., " + long_number(whole.term("irreproducible")) + ")" : "",
                   whole.term("mean_squared")});
  steps.push_back(squared_scale(whole));
  const std::string margin = long_number(whole.term("pass_margin"));
  steps.push_back({Question::kWhole,
                   "bound",
                   "max(limit x scale, " + margin + " x the largest pass)",
                   fmt::format("max({} x {}, {} x {})",
                               long_number(whole.term("limit")),
                               long_number(scale),
                               margin,
                               long_number(whole.term("largest_pass"))),
                   whole.bound});
  if (whole.term("scale") > 0.0) {
    steps.push_back({Question::kWhole,
                     "Q",
                     "||c - r|| / scale",
                     long_number(whole.value) + " / " + long_number(scale),
                     whole.term("q")});
  }
}

void add_whole_steps(const Check& whole,
                     const Comparison& comparison,
                     std::vector<ArithmeticStep>& steps) {
  if (whole.term("passes") > 0.0) {
    add_noise_steps(whole, steps);
  }
  if (whole.term("class_factor") > 0.0) {
    steps.push_back({Question::kWhole,
                     "bound",
                     "factor of the class x a rounding x ||r||",
                     fmt::format("{} x {} x {}",
                                 long_number(whole.term("class_factor")),
                                 long_number(whole.term("unit")),
                                 long_number(comparison.reference_norm)),
                     whole.bound});
  }
}

std::vector<ArithmeticStep> arithmetic_of(const TensorVerdict& tensor,
                                          const std::vector<Check>& checks) {
  std::vector<ArithmeticStep> steps;
  for (const Check& check : checks) {
    switch (check.question) {
      case Question::kOperator:
        add_operator_steps(check, steps);
        break;
      case Question::kOperatorPart:
      case Question::kPart:
        add_part_steps(check, steps);
        break;
      case Question::kOperatorFactor:
      case Question::kFactor:
        add_factor_steps(check, steps);
        break;
      case Question::kWhole:
        add_whole_steps(check, *tensor.comparison, steps);
        break;
      case Question::kTolerance:
        steps.push_back({Question::kTolerance,
                         "worst element",
                         "max |c - r| / (atol + rtol |r|)",
                         "",
                         check.value});
        break;
      default:
        break;
    }
  }
  if (const Check* const golden = tensor.find(Question::kTooCoarse)) {
    steps.push_back({Question::kTooCoarse,
                     "rho",
                     "||c - g|| / ||r - g||",
                     long_number(golden->term("candidate_error")) + " / " +
                         long_number(golden->term("reference_error")),
                     golden->term("rho")});
  }
  return steps;
}

// The smallest errors that the checks of size would have seen.
std::vector<SmallestSeen> smallest_seen(const TensorVerdict& tensor,
                                        const std::vector<Check>& checks) {
  std::vector<SmallestSeen> seen;
  if (!tensor.comparison || tensor.find(Question::kTolerance) != nullptr) {
    return seen;
  }
  for (const Check& check : checks) {
    if (is_about_size(check.question) && std::isfinite(check.detectable) &&
        check.detectable > 0.0) {
      seen.push_back({check.question, check.detectable, check.place.where});
    }
  }
  return seen;
}

// The tensors before `index` that may have led to it: those of its micro-batch. For a tensor of the
// whole step, those of the same parameter, else those of the whole step.
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

std::vector<std::size_t> first_few(std::vector<std::size_t> indices) {
  indices.resize(std::min(indices.size(), kNamed));
  return indices;
}

// Findings before the tensor, nearest first: related ones or, if there are none, any.
std::vector<std::size_t> wrong_ones(std::span<const TensorVerdict> tensors,
                                    std::size_t index,
                                    const std::vector<std::size_t>& related) {
  const auto is_wrong = [&](std::size_t i) { return tensors[i].is_finding(); };
  std::vector<std::size_t> wrong;
  std::ranges::copy_if(related, std::back_inserter(wrong), is_wrong);
  for (std::size_t i = wrong.empty() ? index : 0; i-- > 0 && wrong.size() < kNamed;) {
    if (is_wrong(i)) {
      wrong.push_back(i);
    }
  }
  return first_few(std::move(wrong));
}

// The related tensors that are not findings, nearest to their bounds first.
std::vector<std::size_t> strained_ones(std::span<const TensorVerdict> tensors,
                                       const std::vector<std::size_t>& related) {
  std::vector<std::pair<double, std::size_t>> by_share;
  for (const std::size_t i : related) {
    if (!tensors[i].is_finding()) {
      if (const double share = tensors[i].largest_share(); share > 0.0) {
        by_share.emplace_back(-share, i);
      }
    }
  }
  std::ranges::stable_sort(by_share, {}, &std::pair<double, std::size_t>::first);
  std::vector<std::size_t> strained;
  for (const auto& [share, i] : by_share) {
    strained.push_back(i);
  }
  return first_few(std::move(strained));
}

std::vector<Upstream> upstream_of(const Report& report, std::size_t index) {
  const std::span<const TensorVerdict> tensors = report.tensors;
  const std::vector<std::size_t> related = related_before(tensors, index);
  std::vector<Upstream> list;  // each once, with all its relations
  const auto add = [&](std::size_t i, const std::string& relation) {
    const std::string id = to_string(tensors[i].id);
    const auto known = std::ranges::find(list, id, &Upstream::id);
    if (known != list.end()) {
      known->relation += ", " + relation;
    } else {
      list.push_back({id, tensors[i].status(), tensors[i].largest_share(), relation});
    }
  };
  if (report.first_divergence && *report.first_divergence < index) {
    add(*report.first_divergence, "first divergence");
  }
  for (const std::size_t i : wrong_ones(tensors, index, related)) {
    add(i, "wrong");
  }
  for (const std::size_t i : strained_ones(tensors, related)) {
    add(i, "nearest to its bound");
  }
  for (const std::size_t i : first_few(related)) {
    add(i, "just before");
  }
  return list;
}

std::string within_sentence(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  if (tensor.has(Excuse::kHarmlessScale)) {
    return "within bound: the scale differs from the reference's by a power of two, which changes "
           "neither the bits of the codes nor the values they stand for, and the operand is within "
           "its bound";
  }
  if (tensor.comparison && tensor.comparison->different == 0) {
    return "within bound: all elements are equal";
  }
  const double share = explanation.ruling ? explanation.checks[*explanation.ruling].share() : 0.0;
  if (share == 0.0) {
    return "within bound: no check found anything wrong";
  }
  return fmt::format("within bound: its error is at most {} of any bound that applies",
                     short_number(share));
}

std::string inherited_sentence(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  const auto source = std::ranges::find_if(explanation.upstream, [](const Upstream& before) {
    return before.relation.find("wrong") != std::string::npos;
  });
  const Check& operators = *tensor.find(Question::kOperator);
  const Check* const finite = tensor.find(Question::kFinite);
  const bool overflows = finite != nullptr && !finite->holds;
  return fmt::format(
      "inherited: {}, but its own operators are right (R {}, limit {}); {}",
      overflows ? finite->sentence
                : fmt::format("it differs {}x as much as round-off explains",
                              short_number(tensor.largest_share())),
      short_number(operators.value),
      short_number(operators.bound),
      source != explanation.upstream.end() ? "the error comes with its inputs, from " + source->id
      : overflows ? "no tensor before it is a finding, so round-off took a number across the "
                    "largest of its type, here or in a tensor before"
                  : "no tensor before it is a finding, so roundings added up");
}

std::string finding_sentence(const Explanation& explanation, const Report& report) {
  const TensorVerdict& tensor = explanation.tensor;
  if (tensor.allowed()) {
    return "it would be a finding, but is allowed: " + tensor.cause();
  }
  if (explanation.is_first_divergence) {
    return "DIVERGED, the first divergence: " + tensor.cause();
  }
  return fmt::format("DIVERGED, after the first divergence {}: {}",
                     to_string(report.tensors[*report.first_divergence].id),
                     tensor.cause());
}

std::string noise_sentence(const TensorVerdict& tensor) {
  return tensor.has_too_little_noise()
             ? fmt::format(
                   "; its error against FP64 is {}x the reference's, which is what its precision "
                   "allows; the noise passes perturbed this tensor too little, so its bound is too "
                   "small",
                   short_number(tensor.find(Question::kTooCoarse)->term("rho")))
             : "";
}

// Requires: everything else is filled in.
std::string sentence_of(const Explanation& explanation, const Report& report) {
  switch (explanation.tensor.status()) {
    case Status::kWithin:
      return within_sentence(explanation);
    case Status::kInherited:
      return inherited_sentence(explanation);
    case Status::kIncomplete:
    case Status::kBehindFlip:
      return "not judged: " + explanation.tensor.cause();
    case Status::kNotJudged:
      return fmt::format("not judged: {}", why_not_judged(explanation.tensor));
    default:
      return finding_sentence(explanation, report);
  }
}

}  // namespace

Explanation explain(const Report& report, std::size_t index) {
  Explanation explanation;
  explanation.tensor = report.tensors[index];
  explanation.is_first_divergence = report.first_divergence == index;
  const Check* const ruling = explanation.tensor.ruling();
  for (const Check& check : explanation.tensor.checks) {
    if (&check == ruling) {
      explanation.ruling = explanation.checks.size();
    }
    if (is_shown(check)) {
      explanation.checks.push_back(check);
    }
  }
  explanation.arithmetic = arithmetic_of(explanation.tensor, explanation.checks);
  explanation.diagnosis = report.root(index).diagnosis;
  if (explanation.is_first_divergence) {
    explanation.where_to_look = report.where_to_look;
  }
  explanation.before = index;
  explanation.wrong_before = static_cast<std::size_t>(
      std::ranges::count_if(std::span(report.tensors).first(index), &TensorVerdict::is_finding));
  explanation.upstream = upstream_of(report, index);
  explanation.smallest_seen = smallest_seen(explanation.tensor, explanation.checks);
  explanation.sentence = sentence_of(explanation, report) + noise_sentence(explanation.tensor);
  return explanation;
}

int exit_code(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  return tensor.is_finding() ? 1 : is_judged(tensor.status()) ? 0 : 2;
}

}  // namespace ttrace
