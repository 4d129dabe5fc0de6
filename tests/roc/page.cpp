#include "roc/page.h"

#include "roc/figures.h"
#include "roc/svg.h"
#include "support/clopper_pearson.h"
#include "support/today_rules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

namespace ttrace::roc {
namespace {

std::string number_or_dash(const std::optional<double>& value) {
  return value ? number(*value) : "-";
}

// Precision and mutant, each pair once, in the plan's order.
std::vector<std::pair<std::string, std::string>> rows_of(const Plan& plan) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Series& series : plan.series) {
    const std::pair row(series.precision, series.mutant);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) {
      rows.push_back(row);
    }
  }
  return rows;
}

// The worst layer of a row; over both kinds of weights where none is given.
std::optional<double> worst_of(const Plan& plan,
                               const Outcomes& outcomes,
                               const std::string& detector,
                               const std::pair<std::string, std::string>& row,
                               const std::optional<Weights>& weights = std::nullopt) {
  return worst(plan, outcomes, detector, [&](const Series& series) {
    return series.precision == row.first && series.mutant == row.second &&
           (!weights || series.weights == *weights);
  });
}

// Every detector but structure, which compares nothing of a size.
std::vector<std::string> columns_of(const Outcomes& outcomes) {
  std::vector<std::string> columns = detectors_of(outcomes);
  std::erase(columns, "T0");
  return columns;
}

std::string title_of(const std::string& detector) {
  static const std::map<std::string, std::string> titles = {
      {kAnyTier, "any tier"},
      {at_operator(kAnyTier), "any tier, its operator"},
      {kWithoutForced, "T2 alone"}};
  const auto title = titles.find(detector);
  return title == titles.end() ? detector : title->second;
}

// The 95 % bound of the rate of alarms, over independent references.
std::string rate_below(const CleanScore& score) {
  const double rate = testing::clopper_pearson_upper(score.alarming_references, score.references);
  return number(std::round(1000.0 * rate) / 10.0) + " %";
}

void write_keys(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  out << "| key | goal | smallest found | | at its operator |\n|---|---|---|---|---|\n";
  for (const Key& key : plan.keys) {
    const auto figure = figure_of(key, plan, outcomes);
    out << "| `" << key.name << "` | " << number(key.goal) << " | " << number_or_dash(figure)
        << " | " << (figure && *figure <= key.goal ? "met" : "missed") << " | "
        << number_or_dash(figure_at_operator(key, plan, outcomes)) << " |\n";
  }
}

void write_detectors(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  const auto columns = columns_of(outcomes);
  out << "| precision | mutant | weights |";
  for (const std::string& column : columns) {
    out << " " << title_of(column) << " |";
  }
  out << "\n|---|---|---|";
  for (std::size_t i = 0; i < columns.size(); ++i) {
    out << "---|";
  }
  out << "\n";
  for (const auto& row : rows_of(plan)) {
    for (const Weights weights : {Weights::kInit, Weights::kTrained}) {
      const bool is_run = std::any_of(plan.series.begin(), plan.series.end(), [&](const auto& s) {
        return s.precision == row.first && s.mutant == row.second && s.weights == weights;
      });
      if (!is_run) {
        continue;
      }
      out << "| " << row.first << " | `" << row.second << "` | " << name_of(weights) << " |";
      for (const std::string& column : columns) {
        out << " " << number_or_dash(worst_of(plan, outcomes, column, row, weights)) << " |";
      }
      out << "\n";
    }
  }
}

// "0 of 512 runs, 0 of 92 references; the rate of references is below 3.9 % (95 % confidence)"
std::string alarms_text(const CleanScore& score) {
  return std::to_string(score.alarms) + " of " + std::to_string(score.runs) + " runs, " +
         std::to_string(score.alarming_references) + " of " + std::to_string(score.references) +
         " references; the rate of references is below " + rate_below(score) + " (95 % confidence)";
}

std::vector<std::string> precisions_of(const Plan& plan) {
  std::vector<std::string> result;
  for (const Setting& setting : plan.settings) {
    if (std::find(result.begin(), result.end(), setting.precision) == result.end()) {
      result.push_back(setting.precision);
    }
  }
  return result;
}

void write_alarms(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  const auto precisions = precisions_of(plan);
  out << "| found by |";
  for (const std::string& precision : precisions) {
    out << " " << precision << " |";
  }
  out << "\n|---|";
  for (std::size_t i = 0; i < precisions.size(); ++i) {
    out << "---|";
  }
  out << "\n";
  std::vector<std::string> detectors = detectors_of(outcomes);
  std::erase(detectors, at_operator(kAnyTier));  // the same as any tier where every finding counts
  for (const std::string& detector : detectors) {
    out << "| " << title_of(detector) << " |";
    for (const std::string& precision : precisions) {
      const CleanScore score = clean_score(plan, outcomes, detector, precision);
      out << " " << score.alarms << " of " << score.runs << "; " << score.alarming_references
          << " of " << score.references << ", below " << rate_below(score) << " |";
    }
    out << "\n";
  }
}

// A mutant that rounding removed completely.
void write_rounded_away(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  bool any = false;
  for (std::size_t i = 0; i < plan.series.size(); ++i) {
    for (const Point& point : outcomes.series[i].points) {
      if (point.changed < point.runs) {
        out << (any ? ""
                    : "\nRounding removed these errors, so every bit is as in the clean run:\n\n")
            << "- " << describe(plan.series[i]) << " at " << number(point.magnitude) << ": "
            << point.runs - point.changed << " of " << point.runs << " runs\n";
        any = true;
      }
    }
  }
}

// --- the plot ----------------------------------------------------------------------------------

constexpr double kLeft = 230.0;
constexpr double kWidth = 520.0;
constexpr double kMissed = kLeft + kWidth + 50.0;  // where a detector stands that finds nothing
constexpr double kRow = 26.0;
constexpr double kTop = 70.0;

// The colour of a detector: tiers are strong, rules are weak.
struct Mark {
  std::string colour;
  double size = 4.0;
};

Mark mark_of(const std::string& detector, std::size_t place) {
  static const std::vector<std::string> strong = {"#0b6e4f", "#1f4e9c", "#6a3d9a", "#000000"};
  static const std::vector<std::string> weak = {
      "#e08214", "#d6604d", "#b2abd2", "#92c5de", "#bf812d"};
  const auto* const rule = std::find_if(testing::kRuleTexts.begin(),
                                        testing::kRuleTexts.end(),
                                        [&](const auto& text) { return text.name == detector; });
  if (rule == testing::kRuleTexts.end()) {
    return {strong[place % strong.size()], 5.5};
  }
  return {weak[static_cast<std::size_t>(rule - testing::kRuleTexts.begin()) % weak.size()], 3.5};
}

std::string line_of(double x1, double y1, double x2, double y2) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" stroke=\"#ddd\"/>\n";
}

std::string circle_at(double x, double y, const Mark& mark) {
  return "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"" + number(mark.size) +
         "\" fill=\"" + mark.colour + "\"/>\n";
}

// Powers of ten that the axis begins and ends at.
std::pair<int, int> decades_of(const Plan& plan) {
  double smallest = 1.0;
  for (const Series& series : plan.series) {
    smallest = std::min(smallest, magnitudes_of(plan, series).front());
  }
  return {static_cast<int>(std::floor(std::log10(smallest) + 1e-9)), 0};
}

double place_of(double magnitude, const std::pair<int, int>& decades) {
  return kLeft + kWidth * (std::log10(magnitude) - decades.first) /
                     std::max(1, decades.second - decades.first);
}

void draw_axis(std::ostream& out, const std::pair<int, int>& decades, double bottom) {
  for (int exponent = decades.first; exponent <= decades.second; ++exponent) {
    const double x = place_of(std::pow(10.0, exponent), decades);
    out << line_of(x, kTop - 12.0, x, bottom)
        << text_at(x, bottom + 16.0, "1e" + std::to_string(exponent), "middle");
  }
  out << text_at(kMissed, bottom + 16.0, "not found", "middle");
}

void draw_legend(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  const auto columns = columns_of(outcomes);
  double x = 16.0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const CleanScore score = clean_score(plan, outcomes, columns[i]);
    const std::string text = title_of(columns[i]) + " (" + std::to_string(score.alarms) + "/" +
                             std::to_string(score.runs) + ")";
    out << circle_at(x, 40.0, mark_of(columns[i], i)) << text_at(x + 9.0, 44.0, text, "start");
    x += 26.0 + 6.6 * static_cast<double>(text.size());
  }
}

}  // namespace

std::string plot_of(const Plan& plan, const Outcomes& outcomes) {
  const auto rows = rows_of(plan);
  const auto columns = columns_of(outcomes);
  const auto decades = decades_of(plan);
  const double bottom = kTop + kRow * static_cast<double>(rows.size());
  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << number(kMissed + 60.0)
      << "\" height=\"" << number(bottom + 40.0)
      << "\" font-family=\"sans-serif\" font-size=\"12\">\n"
      << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
      << text_at(16.0,
                 20.0,
                 "Smallest relative error found in all batches, worst layer and weights "
                 "(in brackets: alarms of clean runs)",
                 "start");
  draw_legend(out, plan, outcomes);
  draw_axis(out, decades, bottom);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = kTop + kRow * static_cast<double>(i) + 8.0;
    out << line_of(kLeft, y, kLeft + kWidth, y)
        << text_at(kLeft - 12.0, y + 4.0, rows[i].first + " " + rows[i].second, "end");
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const auto smallest = worst_of(plan, outcomes, columns[j], rows[i]);
      // Detectors that find the same are drawn next to each other.
      const double shift =
          2.5 * (static_cast<double>(j) - 0.5 * static_cast<double>(columns.size() - 1));
      out << circle_at(
          (smallest ? place_of(*smallest, decades) : kMissed) + shift, y, mark_of(columns[j], j));
    }
  }
  out << "</svg>\n";
  return out.str();
}

std::string page_of(const Plan& plan,
                    const Outcomes& outcomes,
                    const std::string& command,
                    const std::string& plot) {
  const CleanScore clean = clean_score(plan, outcomes, kAnyTier);
  std::ostringstream out;
  out << "# How small an error is found\n\n"
      << "`megatron_mini --mutant` plants a relative error of a chosen size in one operator of one "
         "layer, or in the optimizer; magnitudes are half decades.\nEach figure is the smallest "
         "error found in all "
      << plan.seeds.size()
      << " fresh batches, for the worst of three layers (first, middle, last). A dash means that "
         "no magnitude was\nfound, or that clean runs alarmed as well. A find counts only at the "
         "mutant's own tensor: the first divergence of the check (any tier)\nor the first pair "
         "that fails a rule is that tensor, or the tier in question flags it. For \"its "
         "operator\", "
         "the gradient of the weight or of the\ninput of the linear whose output is mutated counts "
         "as well. The layout is `"
      << plan.layout << "`.\n\nMade by `" << command << "`: " << outcomes.runs
      << " runs of mutants and " << clean.runs << " clean ones in " << std::lround(outcomes.seconds)
      << " seconds.\n\n## Goals\n\n";
  write_keys(out, plan, outcomes);
  out << "\n## Who finds what\n\n"
      << "The table has the tiers of TTrace ([verdict.md](../verdict.md)), then T2 alone, which is "
         "what "
         "`--no-forced` leaves, then the rules that\npeople use today on the same traces.\n\n";
  if (!plot.empty()) {
    out << "![smallest error found](" << plot << ")\n\n";
  }
  write_detectors(out, plan, outcomes);
  write_rounded_away(out, plan, outcomes);
  const CleanScore without_forced = clean_score(plan, outcomes, kWithoutForced);
  out << "\n## False alarms\n\nThese are the clean runs that raise an alarm, of every mutant's "
         "batch "
         "and of other batches and layouts. Runs that share a reference share\nits noise passes, "
         "so "
         "they are not independent: a reference counts as one case, and as an alarm if any of its "
         "runs raises one.\n\n"
      << "- TTrace: " << alarms_text(clean)
      << ".\n- T2 alone, which is what `--no-forced` leaves: " << alarms_text(without_forced)
      << ".\n\nEach cell has runs, then references and the bound of their rate.\n\n";
  write_alarms(out, plan, outcomes);
  const auto problems = problems_of(plan, outcomes);
  if (!problems.empty()) {
    out << "\n## Runs without a verdict\n\n";
    for (const std::string& problem : problems) {
      out << "- " << problem << "\n";
    }
  }
  return out.str();
}

std::string summary_of(const Plan& plan, const Outcomes& outcomes) {
  std::ostringstream out;
  for (const Key& key : plan.keys) {
    out << key.name << " " << number_or_dash(figure_of(key, plan, outcomes)) << " (goal "
        << number(key.goal) << ")\n";
  }
  const CleanScore clean = clean_score(plan, outcomes, kAnyTier);
  out << "false alarms: " << alarms_text(clean)
      << "\nwith --no-forced: " << alarms_text(clean_score(plan, outcomes, kWithoutForced)) << "\n"
      << outcomes.runs << " runs of mutants, " << problems_of(plan, outcomes).size()
      << " runs without a verdict, " << std::lround(outcomes.seconds) << " s\n";
  return out.str();
}

}  // namespace ttrace::roc
