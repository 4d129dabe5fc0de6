#include "analysis/findings/codes.h"
#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/explain.h"
#include "analysis/reports/finding_text.h"
#include "trace/sums/squared.h"

#include <fmt/core.h>

#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// "T1 one part"
std::string title_of(Question question) {
  const Tier tier = tier_of(question);
  const std::string words(words_of(question));
  return tier == Tier::kGolden ? words : std::string(name_of(tier)) + " " + words;
}

void write_error(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.comparison) {
    return;
  }
  const Comparison& comparison = *tensor.comparison;
  const std::string elements =
      comparison.is_estimate
          ? fmt::format("{}, compared by sketches", counted(comparison.elements, "element"))
          : fmt::format(
                "largest |c - r| {}{}; {} of {} differ",
                long_number(comparison.max_difference),
                comparison.max_index.empty() ? "" : " at " + index_text(comparison.max_index),
                comparison.different,
                counted(comparison.elements, "element"));
  out << fmt::format("error: ||c - r|| {}, {} of {} norm {}\n  {}{}\n",
                     long_number(comparison.error),
                     short_number(comparison.relative_error),
                     whose_norm(tensor),
                     long_number(comparison.reference_norm),
                     elements,
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

// The smallest error that the check would have noticed, relative to the tensor's norm; of a part,
// where the error lies in it alone.
std::string sight_of(const Check& check) {
  const bool has_one = is_about_size(check.question) && check.detectable > 0.0;
  return has_one && std::isfinite(check.detectable) ? percent_text(check.detectable) : "-";
}

void write_checks(std::ostream& out, const Explanation& explanation) {
  if (explanation.checks.empty()) {
    return;
  }
  out << "\nbounds" << (explanation.ruling ? " (* marks the one that decides):\n" : ":\n");
  std::vector<std::vector<std::string>> rows{
      {" ", "check", "value", "bound", "value/bound", "would see", "from"}};
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
                    sight_of(check),
                    from});
  }
  write_columns(out, rows);
}

// "2 x scale: 1 x the root of F(40, 200), which 1e-07 of right errors exceed".
std::string bound_text(const Check& check, double scale) {
  std::string text = long_number(check.bound / scale) + " x scale";
  // A bound may have another reason, such as the spread of the candidate's own slices.
  const auto factor = check.find(Term::kKernelFactor);
  if (factor && std::abs(check.term(Term::kLimit) * scale - check.bound) <= 1e-6 * check.bound) {
    text += fmt::format(": {} x the root of F({}, {}), which {} of right errors exceed",
                        short_number(*factor),
                        short_number(check.term(Term::kFreedom)),
                        short_number(check.term(Term::kFreedomOfEstimate)),
                        short_number(check.term(Term::kByChance)));
  }
  return text;
}

// 0 where no scale was asked.
double scale_of(const Check& check) {
  double squares = 0.0;
  for (const ComponentValue& each : check.components) {
    squares += each.squared;
  }
  return check.find(Term::kScale).value_or(std::sqrt(squares));
}

// What a check's scale is the root of the sum of, and how value and bound stand to it.
void write_scale(std::ostream& out, const Check& check) {
  const double scale = scale_of(check);
  // The value of an operator's check is in scales already.
  const double unit = check.question == Question::kOperator ? 1.0 : scale;
  std::vector<std::vector<std::string>> rows;
  for (const ComponentValue& each : check.components) {
    const ComponentTraits& traits = traits_of(each.component);
    rows.push_back({std::string(traits.words),
                    long_number(each.squared),
                    short_number(100.0 * each.squared / squared(scale)) + " %",
                    std::string(name_of(traits.basis))});
  }
  if (rows.size() > 1) {
    rows.push_back({"sum", long_number(squared(scale)), "", ""});
  }
  rows.push_back({"scale", long_number(scale), "", rows.empty() ? "" : "root of the sum"});
  rows.push_back({"bound", long_number(check.bound), "", bound_text(check, unit)});
  rows.push_back(
      {"value", long_number(check.value), "", long_number(check.value / unit) + " x scale"});
  out << '\n' << title_of(check.question) << ":\n";
  write_columns(out, rows);
}

void write_golden(std::ostream& out, const Check& golden) {
  out << fmt::format("\ngolden pass: ||c - g|| / ||r - g|| = {} / {} = {}\n",
                     long_number(golden.term(Term::kCandidateError)),
                     long_number(golden.term(Term::kReferenceError)),
                     long_number(golden.term(Term::kRho)));
}

void write_scales(std::ostream& out, const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    if (scale_of(check) > 0.0 && std::isfinite(check.bound)) {
      write_scale(out, check);
    }
  }
}

void write_flips(std::ostream& out, const TensorVerdict& tensor) {
  const Check* const routing = tensor.find(Question::kRouting);
  if (routing == nullptr) {
    return;
  }
  out << fmt::format("choices: {} of {} go to other experts; round-off cannot explain {} of them\n",
                     routing->term(Term::kFlips),
                     counted(static_cast<std::int64_t>(routing->term(Term::kTokens)), "token"),
                     routing->term(Term::kIllegal));
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
  write_scales(out, explanation.checks);
  if (const Check* const golden = tensor.find(Question::kTooCoarse)) {
    write_golden(out, *golden);
  }
  write_cause(out, explanation);
  write_upstream(out, explanation);
}

}  // namespace ttrace
