#include "analysis/align/noted.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

namespace ttrace {
namespace {

// Sentences that differ in their numbers alone, as those about the layers of a model do.
struct Noted {
  std::string sentence;  // the first one
  std::set<std::string> others = {};
  std::set<int> ranks = {};
  std::set<std::int64_t> steps = {};
};

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

bool is_like(const std::string& a, const std::string& b) {
  return without_numbers(a) == without_numbers(b);
}

// "SENTENCE (and 5 like it)"
std::string text_of(const std::string& sentence, const std::set<std::string>& others) {
  return others.empty() ? sentence : fmt::format("{} (and {} like it)", sentence, others.size());
}

// The same of a sentence that says what nobody looked at.
struct Stated {
  NotSeenKind kind;
  std::string sentence;
  std::set<std::string> others = {};
  std::set<Names> sides = {};
};

void add_stated(const NotSeen& fact, Names side, std::vector<Stated>& found) {
  auto known = std::ranges::find_if(found, [&](const Stated& stated) {
    return stated.kind == fact.kind && is_like(stated.sentence, fact.sentence);
  });
  if (known == found.end()) {
    known = found.insert(known, Stated{fact.kind, fact.sentence});
  } else if (known->sentence != fact.sentence) {
    known->others.insert(fact.sentence);
  }
  known->sides.insert(side);
}

}  // namespace

void add_notes(std::string_view side, const Trace& trace, std::vector<std::string>& notes) {
  std::vector<Noted> found;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const std::string& sentence : file.notes()) {
        auto known = std::ranges::find_if(
            found, [&](const Noted& note) { return is_like(note.sentence, sentence); });
        if (known == found.end()) {
          known = found.insert(known, Noted{sentence});
        } else if (known->sentence != sentence) {
          known->others.insert(sentence);
        }
        known->ranks.insert(file.layout().rank);
        known->steps.insert(step.step);
      }
    }
  }
  for (const Noted& note : found) {
    const std::vector<int> ranks(note.ranks.begin(), note.ranks.end());
    const std::string steps = note.steps.size() == 1 ? fmt::format("step {}", *note.steps.begin())
                                                     : counted(note.steps.size(), "step");
    notes.push_back(fmt::format(
        "{}, {}, {}: {}", side, ranks_text(ranks), steps, text_of(note.sentence, note.others)));
  }
}

std::vector<UnseenPart> stated_not_seen(const Trace& reference, const Trace& candidate) {
  std::vector<Stated> found;
  for (const Names side : kBothNames) {
    const Trace& trace = side == Names::kReference ? reference : candidate;
    for (const StepTrace& step : trace.steps()) {
      for (const RankFile& file : step.ranks) {
        for (const NotSeen& fact : file.not_seen()) {
          add_stated(fact, side, found);
        }
      }
    }
  }
  std::vector<UnseenPart> parts;
  for (const Stated& stated : found) {
    const auto side =
        stated.sides.size() == 1 ? std::optional(*stated.sides.begin()) : std::nullopt;
    parts.push_back({stated.kind, side, text_of(stated.sentence, stated.others)});
  }
  return parts;
}

}  // namespace ttrace
