#include "analysis/checks/codes_check.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/explain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string>

namespace ttrace {
namespace {

// "T1 one part"
std::string title_of(CheckKind kind) {
  switch (kind) {
    case CheckKind::kStructure:
      return "T0 structure";
    case CheckKind::kExact:
      return "T0 equal values";
    case CheckKind::kOperator:
      return "T1 its own operators, R";
    case CheckKind::kOperatorSlice:
      return "T1 the worst part";
    case CheckKind::kOperatorFactor:
      return "T1 a factor";
    case CheckKind::kTolerance:
      return "T2 tolerance asked for";
    case CheckKind::kFlips:
      return "T2 choices of experts";
    case CheckKind::kWhole:
      return "T2 the whole tensor";
    case CheckKind::kSlice:
      return "T2 the worst part";
    case CheckKind::kFactor:
      return "T2 a factor";
    case CheckKind::kGolden:
      return "golden rho";
  }
  return "";
}

std::string spaced(std::string text) {
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

// Rows of cells whose columns begin at the same place; the last cell may be of any length.
template <std::size_t kColumns>
void write_columns(std::ostream& out, const std::vector<std::array<std::string, kColumns>>& rows) {
  std::array<std::size_t, kColumns> widths{};
  for (const auto& row : rows) {
    for (std::size_t column = 0; column + 1 < kColumns; ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t column = 0; column < kColumns; ++column) {
      line += row[column];
      if (column + 1 < kColumns) {
        line += std::string(widths[column] - row[column].size() + 2, ' ');
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << '\n';
  }
}

void write_error(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.comparison) {
    return;
  }
  const Comparison& comparison = *tensor.comparison;
  const bool recompute = tensor.symptom == Symptom::kRecompute;
  out << "error: ||c - r|| " << long_number(comparison.error) << ", "
      << short_number(comparison.relative_error)
      << (recompute ? " of the first forward's norm " : " of the reference's norm ")
      << long_number(comparison.reference_norm) << '\n';
  out << "  largest |c - r| " << long_number(comparison.max_difference);
  if (!comparison.max_index.empty()) {
    out << " at " << index_text(comparison.max_index);
  }
  out << "; " << comparison.different << " of "
      << counted(comparison.elements, "element", "elements") << " differ";
  if (std::isfinite(comparison.factor)) {
    out << "; candidate = " << factor_text(comparison.factor) << " x reference, by least squares";
  }
  out << '\n';
}

void write_checks(std::ostream& out, const Explanation& explanation) {
  if (explanation.checks.empty()) {
    return;
  }
  const bool ruled = std::any_of(explanation.checks.begin(),
                                 explanation.checks.end(),
                                 [](const BoundCheck& check) { return check.rules; });
  out << "\nbounds" << (ruled ? "; the one that rules is marked *:\n" : ":\n");
  std::vector<std::array<std::string, 6>> rows{
      {" ", "check", "value", "bound", "value/bound", "from"}};
  for (const BoundCheck& check : explanation.checks) {
    const bool has_numbers = check.kind != CheckKind::kStructure;
    std::string from = check.source;
    if (!check.where.empty()) {
      from += ": " + check.where;
      from += check.ranks.empty() ? "" : ", held by " + ranks_text(check.ranks);
    }
    rows.push_back({check.rules ? "*" : " ",
                    title_of(check.kind),
                    has_numbers ? long_number(check.value) : (check.holds ? "right" : "wrong"),
                    has_numbers ? long_number(check.bound) : "-",
                    has_numbers ? short_number(check.share) : "-",
                    from});
  }
  write_columns(out, rows);
}

void write_arithmetic(std::ostream& out, const std::vector<ArithmeticStep>& steps) {
  if (steps.empty()) {
    return;
  }
  out << "\narithmetic, by docs/verdict.md (r reference, c candidate, m noise pass, f and n forced "
         "passes, g golden pass, p addend computed again):\n";
  std::vector<std::array<std::string, 2>> rows;
  CheckKind last = CheckKind::kStructure;
  for (const ArithmeticStep& step : steps) {
    rows.push_back({step.kind == last ? "" : title_of(step.kind),
                    step.what + " = " + step.formula +
                        (step.numbers.empty() ? "" : " = " + step.numbers) + " = " +
                        long_number(step.value)});
    last = step.kind;
  }
  write_columns(out, rows);
}

void write_flips(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.flips) {
    return;
  }
  out << "choices: " << tensor.flips->flips << " of "
      << counted(tensor.flips->tokens, "token", "tokens") << " to other experts, "
      << tensor.flips->illegal << " of them beyond round-off\n";
}

void write_codes(std::ostream& out, const TensorVerdict& tensor) {
  if (!tensor.codes) {
    return;
  }
  out << "codes: " << codes_text(*tensor.codes) << '\n';
  if (tensor.codes->multiples > 0) {
    out << "  " << tensor.codes->multiples << " of "
        << counted(tensor.codes->scales, "scale", "scales")
        << " differ from the reference's by a power of two, which codes were compared without\n";
  }
}

void write_cause(std::ostream& out, const Explanation& explanation) {
  if (!explanation.is_first_divergence) {
    return;
  }
  out << '\n';
  if (explanation.diagnosis) {
    out << "probable cause: " << spaced(std::string(name_of(explanation.diagnosis->signature)))
        << ": " << explanation.diagnosis->sentence << '\n';
  } else {
    out << "probable cause: none of the known ones fits\n";
  }
  out << "where to look: " << explanation.where_to_look << '\n';
}

void write_upstream(std::ostream& out, const Explanation& explanation) {
  out << "\nbefore it: "
      << counted(static_cast<std::int64_t>(explanation.before), "tensor", "tensors") << ", "
      << explanation.wrong_before << " of them wrong\n";
  std::vector<std::array<std::string, 4>> rows{{"id", "status", "value/bound", "why it is named"}};
  for (const Upstream& before : explanation.upstream) {
    rows.push_back({before.id,
                    spaced(std::string(name_of(before.status))),
                    short_number(before.share),
                    before.relation});
  }
  if (rows.size() > 1) {
    write_columns(out, rows);
  }
}

void write_smallest_seen(std::ostream& out, const std::vector<SmallestSeen>& seen) {
  if (seen.empty()) {
    return;
  }
  out << "\nsmallest error that would have been seen, of the tensor's norm:\n";
  std::vector<std::array<std::string, 3>> rows;
  for (const SmallestSeen& each : seen) {
    rows.push_back({title_of(each.kind),
                    short_number(each.relative),
                    each.where.empty() ? "" : "if it lies in " + each.where + " alone"});
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
  if (!tensor.ranks.empty()) {
    out << "ranks: " << ranks_text(tensor.ranks)
        << (tensor.is_finding() ? ", concerned\n" : ", hold it\n");
  }
  write_checks(out, explanation);
  write_arithmetic(out, explanation.arithmetic);
  write_cause(out, explanation);
  write_upstream(out, explanation);
  write_smallest_seen(out, explanation.smallest_seen);
}

}  // namespace ttrace
