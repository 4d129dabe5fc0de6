#include "analysis/guess/guess.h"

#include "analysis/findings/wording.h"
#include "analysis/guess/activations.h"
#include "analysis/guess/agreement.h"
#include "analysis/guess/equal_values.h"
#include "analysis/guess/leftovers.h"
#include "analysis/guess/map_text.h"
#include "analysis/guess/module_pairs.h"
#include "analysis/guess/same_order.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <set>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

std::string heading_of(const MapGuess& guess) {
  return fmt::format(
      "# A rename map proposed from two traces: {} certain, {} likely, {} open of {}.\n"
      "# {}\n"
      "# certain: the values agree, and nothing else has them. likely: no value says it, but "
      "nothing "
      "else fits.\n"
      "# Answer every line that is OPEN: write the other program's name, or ~, in the place of "
      "open.NAME.\n",
      guess.certain,
      guess.likely,
      guess.open,
      counted(guess.tensors, "tensor"),
      guess.comparable ? "The programs ran with the same weights and data, so values were compared."
                       : "The programs ran with other weights or data, so shapes, order and names "
                         "were compared.");
}

void count(const GuessState& state, MapGuess& guess) {
  for (const Pairing& pairing : state.pairings.all()) {
    const std::size_t units = pairing.reference.size() + pairing.candidate.size();
    (pairing.certainty == Certainty::kCertain ? guess.certain : guess.likely) += units;
  }
  guess.open = state.pairings.open().size();
  guess.tensors = state.reference.units().size() + state.candidate.units().size();
}

// Leaves out entries that decide nothing, because an earlier one does.
void drop_unused(const GuessState& state, MapGuess& guess) {
  const RenameMap map = RenameMap::parse(guess.text);
  std::set<std::size_t> used;
  for (const Names side : kBothNames) {
    for (const Unit& unit : state.side(side).units()) {
      if (const auto rule = map.find(side, unit.id).rule) {
        used.insert(*rule);
      }
    }
  }
  std::vector<MapEntry> kept;
  for (std::size_t i = 0; i < guess.entries.tensors.size(); ++i) {
    if (used.contains(i)) {
      kept.push_back(std::move(guess.entries.tensors[i]));
    }
  }
  guess.entries.tensors = std::move(kept);
  guess.text = map_text(guess.entries, heading_of(guess));
}

// The text, corrected where entries for modules say more than is known.
void write(const GuessState& state, MapGuess& guess) {
  guess.entries = entries_of(state);
  guess.text = map_text(guess.entries, heading_of(guess));
  std::vector<MapEntry> wrong = corrections(state, RenameMap::parse(guess.text));
  if (wrong.empty()) {
    return;
  }
  guess.entries.tensors.insert(guess.entries.tensors.begin(), wrong.begin(), wrong.end());
  guess.text = map_text(guess.entries, heading_of(guess));
  drop_unused(state, guess);
  wrong = corrections(state, RenameMap::parse(guess.text));
  TTRACE_CHECK(wrong.empty(),
               InternalError,
               fmt::format("the proposed map contradicts what was found for {}",
                           paths_text(wrong.front(), Names::kReference)));
}

}  // namespace

MapGuess guess_map(const Trace& reference, const Trace& candidate) {
  const GuessSide ours(reference);
  const GuessSide theirs(candidate);
  GuessState state{.reference = ours, .candidate = theirs};
  pair_equal_parameters(state);
  pair_by_order(state);
  const Agreements agreements(state);
  const ModulePairs modules(state, agreements);
  pair_activations(state, modules, agreements);
  settle_leftovers(state, modules, agreements);
  MapGuess guess;
  guess.comparable = state.comparable;
  count(state, guess);
  write(state, guess);
  return guess;
}

}  // namespace ttrace
