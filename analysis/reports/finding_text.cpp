#include "analysis/reports/finding_text.h"

#include "analysis/findings/wording.h"
#include "trace/base/precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string_view>

namespace ttrace {
namespace {

void write_bound(std::ostream& out, const TensorVerdict& tensor) {
  const Check* const asked = tensor.find(Question::kTolerance);
  if (asked != nullptr) {
    out << fmt::format(
        "  bound: |c - r| <= {} + {} |r| at every element, from {}; {} of {} elements exceed it\n",
        short_number(asked->term("atol")),
        short_number(asked->term("rtol")),
        asked->source,
        asked->term("beyond"),
        tensor.comparison->elements);
    return;
  }
  const std::string source = tensor.bound_source();
  out << fmt::format("  bound: {}{}{}{}\n",
                     short_number(tensor.bound()),
                     tensor.bound() > 0.0 ? " from " : ", ",
                     source,
                     tensor.bound() > 0.0 ? fmt::format("; relative errors below {} go unseen",
                                                        short_number(tensor.detectable()))
                                          : "");
}

void write_numbers(std::ostream& out, const TensorVerdict& tensor) {
  const Comparison& comparison = *tensor.comparison;
  out << fmt::format("  error: {}, {} of {} norm {}\n",
                     short_number(comparison.error),
                     short_number(comparison.relative_error),
                     whose_norm(tensor),
                     short_number(comparison.reference_norm));
  write_bound(out, tensor);
  if (tensor.symptom() == Symptom::kSlice) {
    const Check& part = *tensor.find(Question::kPart);
    out << fmt::format("  slice: {}: error {}, bound {}\n",
                       part.place.where,
                       short_number(part.value),
                       short_number(part.bound));
  }
  if (comparison.different > 0) {
    out << fmt::format(
        "  elements: largest difference {}{}, {} of {} differ\n",
        short_number(comparison.max_difference),
        comparison.max_index.empty() ? "" : " at " + index_text(comparison.max_index),
        comparison.different,
        comparison.elements);
  }
}

// Describes what the tensor's own operators did, whatever came before.
void write_operators(std::ostream& out, const Check& operators) {
  out << fmt::format(
      "  operators: given the candidate's own inputs, the reference's operators return something "
      "{} away; round-off explains {}, so R is {} (limit {}); factor {}; {} % of the elements are "
      "equal in every bit\n",
      short_number(operators.term("error")),
      short_number(operators.term("scale")),
      short_number(operators.value),
      short_number(operators.bound),
      factor_text(operators.term("factor")),
      short_number(std::floor(1000.0 * operators.term("bit_equal")) / 10.0));
}

void write_golden(std::ostream& out, const Check& golden) {
  out << fmt::format(
      "  golden: the candidate is {} away from FP64 and the reference {}, so rho is {}\n",
      short_number(golden.term("candidate_error")),
      short_number(golden.term("reference_error")),
      short_number(golden.term("rho")));
}

struct Unjudged {
  Excuse excuse;
  std::string_view sentence;
};

constexpr std::array kUnjudged = {
    Unjudged{Excuse::kOtherData,
             "the programs read other data, and the reference does not repeat its own"},
    Unjudged{Excuse::kRounds, "the reference itself rounds here"},
    Unjudged{Excuse::kReplaced, "its values were replaced, and no record shows what it should be"},
    Unjudged{Excuse::kOneSided, "on the other side it belongs to an alias, or nothing needs it"},
    Unjudged{Excuse::kNotFinite, "no element is finite on both sides"},
    Unjudged{Excuse::kNoBound, "round-off explains an error as large as the tensor itself"},
};

// Empty where all were finite, or only single elements were not.
std::string not_finite_text(const Report& report) {
  return report.not_finite == 0
             ? ""
             : fmt::format("; {} of {} {} not finite on both sides and {} not compared",
                           report.not_finite,
                           counted(report.tensors.size(), "tensor"),
                           report.not_finite == 1 ? "is" : "are",
                           report.not_finite == 1 ? "was" : "were");
}

// How much of what was recorded the verdict rests on.
std::string share_text(const Report& report) {
  const Counts counts = report.counts();
  const std::size_t operators = counts.operators + counts.operators_unbounded;
  std::string text =
      fmt::format("{} of {} judged", counts.judged, counted(counts.tensors, "tensor"));
  if (operators > 0) {
    text += fmt::format(", {} of {}", counts.operators, counted(operators, "operator"));
  }
  return text + not_finite_text(report);
}

}  // namespace

std::string short_cause(const TensorVerdict& tensor) {
  switch (tensor.status()) {
    case Status::kMissingInCandidate:
      return "missing in the candidate";
    case Status::kMissingInReference:
      return "missing in the reference";
    default:
      break;
  }
  if (tensor.symptom() == Symptom::kSlice) {
    return tensor.find(Question::kPart)->place.where;
  }
  if (tensor.symptom() == Symptom::kFactor) {
    return "factor " + factor_text(tensor.comparison->factor);
  }
  return spaced(name_of(tensor.symptom()));
}

FindingNumbers numbers_of(const TensorVerdict& tensor) {
  if (tensor.symptom() == Symptom::kSlice) {
    const Check& part = *tensor.find(Question::kPart);
    return {short_number(part.value), short_number(part.bound), short_number(part.share())};
  }
  if (tensor.tier() == Tier::kGolden) {
    const Check& golden = *tensor.find(Question::kTooCoarse);
    const double error = golden.term("candidate_error");
    const double bound =
        golden.term(golden.holds ? "least" : "limit") * golden.term("reference_error");
    return {short_number(error), short_number(bound), short_number(error / bound)};
  }
  if (tensor.comparison) {
    return {short_number(tensor.comparison->error),
            short_number(tensor.bound()),
            short_number(tensor.ratio())};
  }
  return {};
}

std::string_view whose_norm(const TensorVerdict& tensor) {
  const bool of_first_forward =
      !tensor.is_in_reference && tensor.find(Question::kRecompute) != nullptr;
  return of_first_forward ? "the first forward's" : "the reference's";
}

std::string spaced(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

void write_diagnosis(std::ostream& out,
                     const char* indent,
                     const std::optional<Diagnosis>& diagnosis) {
  if (diagnosis) {
    const auto write = [&](const char* title, const auto& cause) {
      out << fmt::format(
          "{}{}: {}: {}\n", indent, title, spaced(name_of(cause.signature)), cause.sentence);
    };
    write("probable cause", *diagnosis);
    if (diagnosis->runner_up) {
      write("or", *diagnosis->runner_up);
    }
  }
}

void write_causes(std::ostream& out,
                  const std::string& first,
                  const char* indent,
                  const TensorVerdict& tensor) {
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> causes = tensor.causes();
  const std::size_t shown = std::min(kShown, causes.size());
  for (std::size_t i = 0; i < shown; ++i) {
    out << (i == 0 ? first : std::string(indent) + "also: ") << causes[i] << '\n';
  }
  if (shown < causes.size()) {
    out << fmt::format("{}... and {} more of the same tensor (--format json lists all)\n",
                       indent,
                       causes.size() - shown);
  }
}

void write_finding(std::ostream& out,
                   const TensorVerdict& tensor,
                   const std::optional<Diagnosis>& diagnosis) {
  write_causes(out, "  what: ", "  ", tensor);
  write_diagnosis(out, "  ", diagnosis);
  if (const Check* const operators = tensor.find(Question::kOperator)) {
    write_operators(out, *operators);
  }
  if (tensor.fails(Question::kTooAccurate) || tensor.fails(Question::kTooCoarse)) {
    write_golden(out, *tensor.find(Question::kTooCoarse));
  }
  if (tensor.comparison) {
    write_numbers(out, tensor);
  }
  if (const std::vector<int> ranks = tensor.ranks(); !ranks.empty()) {
    out << "  concerns: " << ranks_text(ranks) << '\n';
  }
}

std::string precision_text(const Side& side) {
  const Precision* const declared = find_precision(side.manifest.precision);
  return declared == nullptr || !side.computes_in || *side.computes_in == declared->stored
             ? side.manifest.precision
             : fmt::format("parameters {}, activations {}",
                           name_of(declared->stored),
                           name_of(*side.computes_in));
}

std::string headline(const Report& report) {
  const std::string reserved = reservation(report);
  return report.partial()                   ? fmt::format("PARTIAL: {}; {}",
                                        report.diverged() ? "DIVERGED" : "within bound so far",
                                        reserved)
         : report.diverged()                ? "DIVERGED"
         : !report.why_not_judged().empty() ? "NOT JUDGED: " + reserved
         : !reserved.empty()                ? "UNDECIDED: " + reserved
                                            : "WITHIN BOUND: " + share_text(report);
}

std::string reservation(const Report& report) {
  if (report.partial()) {
    return "the verdict covers only what was written before the interruption";
  }
  const std::string why = report.why_not_judged();
  return !why.empty()         ? why + not_finite_text(report)
         : report.undecided() ? "all differences depend on tokens that go to other experts"
                              : "";
}

std::string_view why_not_judged(const TensorVerdict& tensor) {
  const auto* const found = std::ranges::find_if(
      kUnjudged, [&](const Unjudged& reason) { return tensor.has(reason.excuse); });
  return found == kUnjudged.end() ? "something else answers for it" : found->sentence;
}

std::string finding_line(const Report& report, std::size_t index) {
  const TensorVerdict& tensor = report.tensors[index];
  const FindingNumbers numbers = numbers_of(tensor);
  std::string text = report.first_divergence == index ? "first divergence: " : "";
  const std::string& cause = tensor.deciding()->sentence;
  text += cause.substr(0, cause.find("; "));
  if (numbers.error != "-") {
    text += fmt::format("; error {}, bound {}", numbers.error, numbers.bound);
    const std::vector<int> ranks = tensor.ranks();
    text += ranks.empty() ? "" : "; " + ranks_text(ranks);
  }
  if (const auto diagnosis = report.root(index).diagnosis) {
    text += "; probable cause: " + spaced(name_of(diagnosis->signature));
    text += diagnosis->runner_up ? " or " + spaced(name_of(diagnosis->runner_up->signature)) : "";
  }
  return text;
}

}  // namespace ttrace
