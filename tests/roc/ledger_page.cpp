#include "roc/ledger_page.h"

#include "analysis/findings/wording.h"

#include <ostream>
#include <sstream>
#include <string>
#include <string_view>

namespace ttrace::roc {
namespace {

// "1.8 and 43"; "-" where no bound of the row has both sides.
std::string growth_text(const RowEffect& effect) {
  return effect.growth.empty() ? "-"
                               : short_number(effect.median_growth()) + " and " +
                                     short_number(effect.largest_growth());
}

void write_intro(std::ostream& out, const Ablation& ablation, const std::string& command) {
  out << "# What every row of the ledger costs and buys\n\n"
         "A row is a component of the error model or an excuse; [the reference "
         "page](../verdict_reference.md) defines each. `ttrace diff RUN\n--without NAME` judges a "
         "run as if a row did not exist. This page is what `"
      << command << "` wrote.\n\nIt judged " << counted(std::ssize(ablation.runs), "clean run")
      << ", each in three ways: with all passes of `ttrace check --golden`, without forced passes, "
         "and without noise.\nWith all rows in force, "
      << ablation.alarms.size() << " of these raised an alarm; " << ablation.problems.size()
      << " runs had no verdict. It took " << short_number(ablation.seconds / 60.0)
      << " minutes.\n\n"
         "- **Alone**: runs that raise an alarm when this row alone is taken out.\n"
         "- **Needed by**: a run that alarms without the row, alone or once all rows are gone that "
         "can go together without an alarm in any run\n  (backward elimination, in the order of "
         "how few tensors they act on). A row that none of these runs needs has a case of its own, "
         "measured\n  in another program.\n"
         "- **Acts on**: tensors for which a check says something else without the row; in "
         "brackets those that pass nothing without it.\n"
         "- **Growth**: by what factor it makes the bounds of the others larger, median and "
         "largest. The smallest error that is found grows as much.\n\n";
}

std::string need_text(const Ablation& ablation, const LedgerRow& row) {
  const auto found = ablation.needed.find(row.allowance);
  return found != ablation.needed.end() ? "`" + found->second + "`"
         : has_case_of_its_own(row)     ? "its own case: `" + std::string(row.witness) + "`"
                                        : "**nothing**";
}

}  // namespace

std::string ledger_page(const Ablation& ablation, const std::string& command) {
  std::ostringstream out;
  write_intro(out, ablation, command);
  out << "| row | alone | acts on | growth | needed by |\n|---|---|---|---|---|\n";
  for (const LedgerRow& row : ledger()) {
    const auto found = ablation.effects.find(row.allowance);
    const RowEffect effect = found == ablation.effects.end() ? RowEffect() : found->second;
    out << "| " << row.name << " | " << effect.alarms.size() << " | " << effect.tensors << " ("
        << effect.exempt << ") | " << growth_text(effect) << " | " << need_text(ablation, row)
        << " |\n";
  }
  return out.str();
}

}  // namespace ttrace::roc
