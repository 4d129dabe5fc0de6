#include "scoreboard/summary_tables.h"

#include "scoreboard/text.h"

#include <ostream>

namespace ttrace::scoreboard {
namespace {

// Rows of a table by precision, and one of all.
std::vector<std::string> rows_of(const Plan& plan) {
  std::vector<std::string> rows = precisions_of(plan);
  rows.emplace_back();
  return rows;
}

std::string row_name(const std::string& part) {
  return part.empty() ? "all" : part;
}

// "most exact | any accepted | axis, factor and ranks"
void write_cause_cells(std::ostream& out, const Score& score) {
  out << share(score.causes_exact, score.found) << " | " << share(score.causes_right, score.found)
      << " | " << share(score.terms_right, score.with_terms) << " |";
}

// "found | located" of the triggered and of the found.
void write_found_cells(std::ostream& out, int found, int triggered, int located) {
  out << share(found, triggered) << " | " << share(located, found) << " |";
}

}  // namespace

void write_found(std::ostream& out,
                 const Catalogue& catalogue,
                 const Plan& plan,
                 const Outcomes& outcomes) {
  out << "| precision | bugs run | triggered | found, of those | at the declared tensor, of those "
         "| "
         "found with `--no-forced` | at the declared tensor, of those |\n"
         "|---|---|---|---|---|---|---|\n";
  for (const std::string& precision : rows_of(plan)) {
    const Score score = score_of(catalogue, plan, outcomes, {.precision = precision});
    out << "| " << row_name(precision) << " | " << score.runs << " | " << score.triggered << " | ";
    write_found_cells(out, score.found, score.triggered, score.located);
    out << " ";
    write_found_cells(
        out, score.found_without_forced, score.triggered, score.located_without_forced);
    out << "\n";
  }
}

void write_causes(std::ostream& out,
                  const Catalogue& catalogue,
                  const Plan& plan,
                  const Outcomes& outcomes) {
  out << "\n| precision | hint as declared | of these, where no cause is named | most exact "
         "signature | any accepted signature | axis, factor and ranks |\n"
         "|---|---|---|---|---|---|\n";
  for (const std::string& precision : rows_of(plan)) {
    const Score score = score_of(catalogue, plan, outcomes, {.precision = precision});
    out << "| " << row_name(precision) << " | " << share(score.hints_right, score.found) << " | "
        << score.hints_of_nothing << " | ";
    write_cause_cells(out, score);
    out << "\n";
  }
}

void write_difficulties(std::ostream& out,
                        const Catalogue& catalogue,
                        const Plan& plan,
                        const Outcomes& outcomes) {
  out << "\n| size of the error | bugs run | found, of those triggered | at the declared tensor, "
         "of "
         "those | found with `--no-forced` | at the declared tensor, of those | hint as declared | "
         "most exact signature | any accepted signature | axis, factor and ranks |\n"
         "|---|---|---|---|---|---|---|---|---|---|\n";
  for (const std::string& difficulty : difficulties()) {
    const Score score = score_of(catalogue, plan, outcomes, {.difficulty = difficulty});
    out << "| " << difficulty << " | " << score.runs << " | ";
    write_found_cells(out, score.found, score.triggered, score.located);
    out << " ";
    write_found_cells(
        out, score.found_without_forced, score.triggered, score.located_without_forced);
    out << " " << share(score.hints_right, score.found) << " | ";
    write_cause_cells(out, score);
    out << "\n";
  }
}

void write_alarms(std::ostream& out, const Plan& plan, const Outcomes& outcomes) {
  out << "\n| precision | clean runs | alarms | alarms with `--no-forced` | references | with an "
         "alarm | rate below (95 %) | with an alarm of `--no-forced` | rate below (95 %) | "
         "diagnoses "
         "|\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const std::string& precision : rows_of(plan)) {
    const CleanScore score = clean_score_of(plan, outcomes, precision);
    out << "| " << row_name(precision) << " | " << score.runs << " | " << score.alarms.runs << " | "
        << score.without_forced.runs << " | " << score.references << " | "
        << score.alarms.references << " | " << rate_below(score.alarms.references, score.references)
        << " | " << score.without_forced.references << " | "
        << rate_below(score.without_forced.references, score.references) << " | " << score.diagnoses
        << " |\n";
  }
}

}  // namespace ttrace::scoreboard
