#include "analysis/align/noted.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>

namespace ttrace {
namespace {

struct Noted {
  std::string sentence;
  std::set<int> ranks = {};
  std::set<std::int64_t> steps = {};
};

}  // namespace

void add_notes(std::string_view side, const Trace& trace, std::vector<std::string>& notes) {
  std::vector<Noted> found;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const std::string& sentence : file.notes()) {
        auto known = std::ranges::find(found, sentence, &Noted::sentence);
        if (known == found.end()) {
          known = found.insert(known, Noted{sentence});
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
    notes.push_back(fmt::format("{}, {}, {}: {}", side, ranks_text(ranks), steps, note.sentence));
  }
}

std::vector<UnseenPart> stated_not_seen(const Trace& reference, const Trace& candidate) {
  std::vector<UnseenPart> parts;
  for (const Names side : kBothNames) {
    const Trace& trace = side == Names::kReference ? reference : candidate;
    const std::size_t before = parts.size();  // those of the other side
    for (const StepTrace& step : trace.steps()) {
      for (const RankFile& file : step.ranks) {
        for (const NotSeen& fact : file.not_seen()) {
          const auto known = std::ranges::find_if(parts, [&](const UnseenPart& part) {
            return part.kind == fact.kind && part.sentence == fact.sentence;
          });
          if (known == parts.end()) {
            parts.push_back({fact.kind, side, fact.sentence});
          } else if (known - parts.begin() < static_cast<std::ptrdiff_t>(before)) {
            known->side.reset();
          }
        }
      }
    }
  }
  return parts;
}

}  // namespace ttrace
