#include "analysis/align/noted.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// The sentence with every number as "#".
std::string without_numbers(const std::string& sentence) {
  std::string text;
  for (const char c : sentence) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit || !text.ends_with('#')) {
      text += is_digit ? '#' : c;
    }
  }
  return text;
}

// Sentences that differ in their numbers alone, as those about the layers of a model do.
struct Alike {
  std::string numberless;
  std::string first;
  std::set<std::string> others = {};

  // "SENTENCE (and 5 like it)"
  [[nodiscard]] std::string text() const {
    return others.empty() ? first : fmt::format("{} (and {} like it)", first, others.size());
  }
};

struct Noted {
  Alike alike;
  std::set<int> ranks = {};
  std::set<std::int64_t> steps = {};
};

struct Stated {
  Alike alike;
  NotSeenKind kind = NotSeenKind::kUpdates;
  std::set<Names> sides = {};
};

// That of `found` which the sentence is like, and for which `fits`; a new one if there is none.
template <class Entry, class Fits>
Entry& entry_of(const std::string& sentence, std::vector<Entry>& found, Fits&& fits) {
  std::string numberless = without_numbers(sentence);
  const auto known = std::ranges::find_if(found, [&](const Entry& entry) {
    return entry.alike.numberless == numberless && fits(entry);
  });
  if (known == found.end()) {
    return found.emplace_back(Entry{{std::move(numberless), sentence}});
  }
  if (known->alike.first != sentence) {
    known->alike.others.insert(sentence);
  }
  return *known;
}

}  // namespace

void add_notes(std::string_view side, const Trace& trace, std::vector<std::string>& notes) {
  std::vector<Noted> found;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const std::string& sentence : file.notes()) {
        Noted& note = entry_of(sentence, found, [](const Noted&) { return true; });
        note.ranks.insert(file.layout().rank);
        note.steps.insert(step.step);
      }
    }
  }
  for (const Noted& note : found) {
    const std::vector<int> ranks(note.ranks.begin(), note.ranks.end());
    const std::string steps = note.steps.size() == 1 ? fmt::format("step {}", *note.steps.begin())
                                                     : counted(note.steps.size(), "step");
    notes.push_back(
        fmt::format("{}, {}, {}: {}", side, ranks_text(ranks), steps, note.alike.text()));
  }
}

std::vector<UnseenPart> stated_not_seen(const Trace& reference, const Trace& candidate) {
  std::vector<Stated> found;
  for (const Names side : kBothNames) {
    const Trace& trace = side == Names::kReference ? reference : candidate;
    for (const StepTrace& step : trace.steps()) {
      for (const RankFile& file : step.ranks) {
        for (const NotSeen& fact : file.not_seen()) {
          Stated& stated = entry_of(
              fact.sentence, found, [&](const Stated& other) { return other.kind == fact.kind; });
          stated.kind = fact.kind;
          stated.sides.insert(side);
        }
      }
    }
  }
  std::vector<UnseenPart> parts;
  for (const Stated& stated : found) {
    const auto side =
        stated.sides.size() == 1 ? std::optional(*stated.sides.begin()) : std::nullopt;
    parts.push_back({stated.kind, side, stated.alike.text()});
  }
  return parts;
}

}  // namespace ttrace
