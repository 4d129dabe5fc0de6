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
                   short_number(tensor.find(Question::kTooCoarse)->term(Term::kRho)))
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
      return fmt::format("not judged: {}", explanation.tensor.why_not_judged());
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
  explanation.diagnosis = report.root(index).diagnosis;
  if (explanation.is_first_divergence) {
    explanation.where_to_look = report.where_to_look;
  }
  explanation.before = index;
  explanation.wrong_before = static_cast<std::size_t>(
      std::ranges::count_if(std::span(report.tensors).first(index), &TensorVerdict::is_finding));
  explanation.upstream = upstream_of(report, index);
  explanation.sentence = sentence_of(explanation, report) + noise_sentence(explanation.tensor);
  return explanation;
}

int exit_code(const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  return tensor.is_finding() ? 1 : is_judged(tensor.status()) ? 0 : 2;
}

}  // namespace ttrace
