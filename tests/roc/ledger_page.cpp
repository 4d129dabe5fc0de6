#include "roc/ledger_page.h"

#include "analysis/findings/wording.h"

#include <array>
#include <sstream>
#include <string_view>
#include <vector>

namespace ttrace::roc {
namespace {

// Rows that the ledger once had.
struct RemovedRow {
  std::string_view name;
  std::string_view why;
};
constexpr auto kRemoved = std::to_array<RemovedRow>({
    {"largest-pass-of-slices",
     "It never acted. A slice's noise holds its largest pass: with 5 passes 1.2 times that pass is "
     "at most 2.7 times the slice's own noise, and the limits allow 3.3 times and more."},
    {"whole-limit, vector-limit, scalar-limit, slice-limit, group-limit, factor-limit",
     "Each class of tensors had a limit for every statistic. The limit is now a quantile of F, "
     "whose "
     "degrees of freedom the passes tell."},
    {"parts-of-updates, factors-of-vectors",
     "They exempted parts and factors whose errors are rare or few. So few degrees of freedom make "
     "their limits wide."},
    {"operator-limit, operator-slice-limit, operator-row-limit, operator-group-limit, "
     "operator-factor-limit, factor-of-updates",
     "Limits of operators, for each sort of part. The limit is a quantile of F here, too."},
    {"ring-limit",
     "It doubled the limit of gradients behind ring attention. What a ring adds up is a component "
     "of the scale now (ring-sums)."},
    {"few-elements, few-slice-elements", "Few elements are few degrees of freedom."},
    {"pooled-noise", "How much the like tell of one another follows from how much they differ."},
    {"largest-pass",
     "The bound was at least 1.2 times the error of the largest pass. Where one pass of five did "
     "something alone, passes vary, and the limit grows."},
    {"update-share",
     "Covered by update-flips. It made bounds of updates 1.02 times as large, 8.6 times at most, "
     "and "
     "no run alarmed without it."},
    {"scale-noise (the usual one)",
     "Covered by the term of the largest relative noise, now called scale-noise: 1.06 times, at "
     "most "
     "1.27, and no run alarmed without it."},
    {"inherited-from-microbatches",
     "Covered by the term of biases, now called inherited-noise: 1.09 times, at most 1.58. The "
     "FP64 "
     "run of two steps that both were added for does not alarm without it."},
    {"default-factor-of-updates",
     "The factor of updates without noise was 400. It is now that of vectors, 100; no run alarmed "
     "with 40."},
    {"few-factor-elements",
     "It exempted factors of fewer than 32 elements. No run alarmed without it (see below)."},
    {"few-addend-factor-elements", "Merged into few-factor-elements, which went later."},
    {"golden-order",
     "It took the reference's distance from FP64 to be at least one rounding, and made the bound "
     "1.55 times as large in half of the tensors. No run alarmed without it (see below)."},
    {"few-addend-elements", "Merged into few-elements, which went later."},
    {"own-addend-spread", "Merged into own-spread, the same constant of 5."},
    {"pooled-factors", "Merged into pooled-noise, which went later."},
    {"pooled-operator-parts", "Merged into pooled-noise, which went later."},
});

// "1.8 and 43"; "-" where no bound of the row has both sides.
std::string growth_text(const RowEffect& effect) {
  if (effect.growth.empty()) {
    return "-";
  }
  return short_number(effect.median_growth()) + " and " + short_number(effect.largest_growth());
}

void write_intro(std::ostream& out, const Ablation& ablation, const std::string& command) {
  out << "# The ledger of limits\n\n"
         "Everything that widens a bound, exempts a tensor from a question, or is a constant of a "
         "bound has one row here. The rows stand in\n"
         "[ledger_noise_rows.h](../../analysis/bounds/ledger_noise_rows.h) and\n"
         "[ledger_operator_rows.h](../../analysis/bounds/ledger_operator_rows.h), and the code of "
         "every "
         "term asks whether its row is in force.\n`ttrace diff RUN --without NAME` "
         "judges a run as if a row did not exist. This page is what `"
      << command << "` wrote.\n\n"
      << "It judged " << counted(std::ssize(ablation.runs), "clean run")
      << " once with all rows and once without each. Every run has a reference of its own. "
      << "Each was judged in three ways: with all passes\nof `ttrace check --golden`, without "
         "forced passes (as `--no-forced`), and without noise. With all rows in force, "
      << ablation.alarms.size() << " of these\nraised an alarm. " << ablation.problems.size()
      << " runs had no verdict. The judging and the runs took "
      << short_number(ablation.seconds / 60.0) << " minutes.\n\n";
}

void write_table(std::ostream& out, const Ablation& ablation) {
  out << "## What each row buys and costs\n\n"
         "- **Alarms**: runs that raise an alarm without the row and none with it. This is what "
         "the row buys.\n"
         "- **Acts on**: tensors, over all runs and ways to judge them, for which a check says "
         "something else without the row; in brackets those\n  that are exempt from a question, or "
         "would have to be equal.\n"
         "- **Growth**: by what factor the row makes the bounds of the other tensors larger, "
         "median "
         "and largest. This is what the row costs: the\n  smallest error that is found there grows "
         "by as much. Below 1 the row makes bounds smaller.\n\n"
         "| row | alarms | acts on | growth |\n|---|---|---|---|\n";
  for (const LedgerRow& row : ledger()) {
    const auto found = ablation.effects.find(row.allowance);
    const RowEffect effect = found == ablation.effects.end() ? RowEffect() : found->second;
    out << "| [" << row.name << "](#" << row.name << ") | " << effect.alarms.size() << " | "
        << effect.tensors << " (" << effect.exempt << ") | " << growth_text(effect) << " |\n";
  }
}

bool has_alarms(const Ablation& ablation, const LedgerRow& row) {
  const auto found = ablation.effects.find(row.allowance);
  return found != ablation.effects.end() && !found->second.alarms.empty();
}

void write_silent_rows(std::ostream& out, const Ablation& ablation) {
  std::vector<std::string_view> silent;
  for (const LedgerRow& row : ledger()) {
    if (!has_alarms(ablation, row)) {
      silent.push_back(row.name);
    }
  }
  out << "\n## Rows without an alarm here\n\n"
      << "For " << counted(std::ssize(silent), "row")
      << ", no run of this ablation alarms when that row alone is taken out. Such a row stays for "
         "one of three "
         "reasons. A unit test\n"
         "repeats a case that was measured elsewhere (its witness below): DDP and FSDP2 over four "
         "ranks, Megatron-core's optimizer,\n"
         "biases of keys, norms of queries and keys. Or its number is a margin over a measured "
         "extreme, and no run has to reach it. Or it\n"
         "makes a bound smaller.\n\nThe rows are:\n";
  for (std::size_t i = 0; i < silent.size(); ++i) {
    out << silent[i] << (i + 1 == silent.size() ? ".\n" : i % 6 == 5 ? ",\n" : ", ");
  }
}

void write_rows(std::ostream& out, const Ablation& ablation) {
  out << "\n## The rows\n";
  for (const LedgerRow& row : ledger()) {
    out << "\n### " << row.name << "\n\n"
        << row.what << "\n\n**Source.** " << row.source << "\n\n**Alarms without it:** `"
        << row.witness << "`";
    if (has_alarms(ablation, row)) {
      out << "; in this ablation first `" << ablation.effects.at(row.allowance).alarms.front()
          << "`";
    }
    out << "\n";
  }
}

void write_removed(std::ostream& out) {
  out << "\n## Before and after\n\nThe ledger has " << ledger().size() << " rows. "
      << kRemoved.size() << " others bought nothing and are gone:\n\n| row | why |\n|---|---|\n";
  for (const RemovedRow& row : kRemoved) {
    out << "| " << row.name << " | " << row.why << " |\n";
  }
  out << "\nConstants that several places had on their own are one each: 32 elements or slices, "
         "below "
         "which nothing is judged part by part\n(it was 32 four times and 64 twice); 5 passes, the "
         "weight of what is known of others of a kind (three times); 5 standard deviations\nof a "
         "factor's own spread (twice); 100 roundings for all that has no better default.\n\n"
         "When the rows went, 144 clean runs were judged with the rest of the ledger, with forced "
         "passes and without: the runs of the\nablation of that time, 28 random ones (seeds 9101, "
         "9102, 9103) and 74 clean runs of the scoreboard. None raised an alarm. "
         "few-factor-elements and "
         "golden-order went later, after\n57 and 87 runs (--cases 15 --seed 9601 and --cases 25 "
         "--seed 9777) that raise no alarm without either.\n";
}

}  // namespace

std::string ledger_page(const Ablation& ablation, const std::string& command) {
  std::ostringstream out;
  write_intro(out, ablation, command);
  write_table(out, ablation);
  write_silent_rows(out, ablation);
  write_removed(out);
  write_rows(out, ablation);
  return out.str();
}

}  // namespace ttrace::roc
