#include "analysis/findings/codes.h"
#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/finding_text.h"

#include <fmt/core.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// "T1 one part"
std::string title_of(Question question) {
  const auto with_tier = [&](const char* what) {
    return std::string(name_of(tier_of(question))) + " " + what;
  };
  switch (question) {
    case Question::kExact:
    case Question::kDyadic:
      return with_tier("equal values");
    case Question::kOperator:
      return with_tier("its own operators, R");
    case Question::kTolerance:
      return with_tier("the user's tolerance");
    case Question::kRouting:
      return with_tier("choices of experts");
    case Question::kWhole:
      return with_tier("the whole tensor");
    case Question::kPart:
    case Question::kOperatorPart:
      return with_tier("the worst part");
    case Question::kFactor:
    case Question::kOperatorFactor:
      return with_tier("a factor");
    case Question::kTooAccurate:
    case Question::kTooCoarse:
      return "golden rho";
    default:
      return with_tier(std::string(name_of(question)).c_str());
  }
}

void write_error(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.comparison) {
    return;
  }
  const Comparison& comparison = *tensor.comparison;
  out << fmt::format(
      "error: ||c - r|| {}, {} of {} norm {}\n  largest |c - r| {}{}; {} of {} differ{}\n",
      long_number(comparison.error),
      short_number(comparison.relative_error),
      whose_norm(tensor),
      long_number(comparison.reference_norm),
      long_number(comparison.max_difference),
      comparison.max_index.empty() ? "" : " at " + index_text(comparison.max_index),
      comparison.different,
      counted(comparison.elements, "element"),
      std::isfinite(comparison.factor)
          ? fmt::format("; candidate = {} x reference, by least squares",
                        factor_text(comparison.factor))
          : "");
  if (comparison.reordered > 0) {
    out << fmt::format(
        "  {} chose the same experts in another order; c is put into the reference's order\n",
        counted(comparison.reordered, "token"));
  }
}

void write_checks(std::ostream& out, const Explanation& explanation) {
  if (explanation.checks.empty()) {
    return;
  }
  out << "\nbounds" << (explanation.ruling ? " (* marks the one that decides):\n" : ":\n");
  std::vector<std::vector<std::string>> rows{
      {" ", "check", "value", "bound", "value/bound", "from"}};
  for (std::size_t i = 0; i < explanation.checks.size(); ++i) {
    const Check& check = explanation.checks[i];
    const bool has_numbers = check.has_numbers();
    std::string from = check.source;
    if (!check.place.where.empty()) {
      from += ": " + check.place.where;
      from += check.place.ranks.empty() || from.find("rank") != std::string::npos
                  ? ""
                  : ", held by " + ranks_text(check.place.ranks);
    }
    rows.push_back({explanation.ruling == i ? "*" : " ",
                    title_of(check.question),
                    has_numbers ? long_number(check.value) : (check.holds ? "right" : "wrong"),
                    has_numbers ? long_number(check.bound) : "-",
                    has_numbers ? short_number(check.share()) : "-",
                    from});
  }
  write_columns(out, rows);
}

void write_arithmetic(std::ostream& out, const std::vector<ArithmeticStep>& steps) {
  if (steps.empty()) {
    return;
  }
  out << "\narithmetic (see docs/verdict_reference.md; r: reference, c: candidate, m: noise pass, "
         "f and n: forced passes, g: golden pass, p: addend computed again):\n";
  std::vector<std::vector<std::string>> rows;
  Question last = Question::kStructure;
  for (const ArithmeticStep& step : steps) {
    rows.push_back({step.question == last ? "" : title_of(step.question),
                    step.what + " = " + step.formula +
                        (step.numbers.empty() ? "" : " = " + step.numbers) + " = " +
                        long_number(step.value)});
    last = step.question;
  }
  write_columns(out, rows);
}

void write_flips(std::ostream& out, const TensorVerdict& tensor) {
  const Check* const routing = tensor.find(Question::kRouting);
  if (routing == nullptr) {
    return;
  }
  out << fmt::format("choices: {} of {} go to other experts; round-off cannot explain {} of them\n",
                     routing->term("flips"),
                     counted(static_cast<std::int64_t>(routing->term("tokens")), "token"),
                     routing->term("illegal"));
}

void write_codes(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.codes) {
    return;
  }
  out << "codes: " << codes_text(*tensor.codes) << '\n';
  if (tensor.codes->multiples > 0) {
    out << fmt::format(
        "  {} of {} differ from the reference's by a power of two; codes were compared without "
        "this factor\n",
        tensor.codes->multiples,
        counted(tensor.codes->scales, "scale"));
  }
}

void write_cause(std::ostream& out, const Explanation& explanation) {
  if (!explanation.is_first_divergence) {
    return;
  }
  out << '\n';
  if (explanation.diagnosis) {
    write_diagnosis(out, "", *explanation.diagnosis);
  } else {
    out << "cause: no cause that TTrace knows explains it\n";
  }
  out << "to do: " << explanation.where_to_look << '\n';
}

void write_upstream(std::ostream& out, const Explanation& explanation) {
  out << fmt::format("\nrecorded before it: {}, {} of them wrong\n",
                     counted(explanation.before, "tensor"),
                     explanation.wrong_before);
  std::vector<std::vector<std::string>> rows{{"id", "status", "value/bound", "why it is listed"}};
  for (const Upstream& before : explanation.upstream) {
    rows.push_back(
        {before.id, spaced(name_of(before.status)), short_number(before.share), before.relation});
  }
  if (rows.size() > 1) {
    write_columns(out, rows);
  }
}

void write_smallest_seen(std::ostream& out, const std::vector<SmallestSeen>& seen) {
  if (seen.empty()) {
    return;
  }
  out << "\nsmallest error that each check would have noticed, relative to the tensor's norm:\n";
  std::vector<std::vector<std::string>> rows;
  for (const SmallestSeen& each : seen) {
    rows.push_back({title_of(each.question),
                    short_number(each.relative),
                    each.where.empty() ? "" : "if the error lies only in " + each.where});
  }
  write_columns(out, rows);
}

}  // namespace

void write_text(std::ostream& out, const Explanation& explanation) {
  const TensorVerdict& tensor = explanation.tensor;
  out << to_string(tensor.id) << '\n' << explanation.sentence << '\n';
  write_error(out, tensor);
  write_flips(out, tensor);
  write_codes(out, tensor);
  if (const std::vector<int> ranks = tensor.ranks(); !ranks.empty()) {
    out << (tensor.is_finding() ? "concerns: " : "held by: ") << ranks_text(ranks) << '\n';
  }
  write_checks(out, explanation);
  write_arithmetic(out, explanation.arithmetic);
  write_cause(out, explanation);
  write_upstream(out, explanation);
  write_smallest_seen(out, explanation.smallest_seen);
}

}  // namespace ttrace
