#include "analysis/guess/star_entries.h"

#include "analysis/align/module_path.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// Slots that the paths themselves name do not take part in patterns.
PathGroup without_slots(PathGroup paths) {
  for (auto* side : {&paths.reference, &paths.candidate}) {
    for (std::string& path : *side) {
      path.resize(std::min(path.find('/'), path.size()));
    }
  }
  return paths;
}

// Whether an entry of the first kind and slot is asked for tensors that one of the second covers.
bool same_scope(const EntryWords& one, const EntryWords& two) {
  return one.kinds == two.kinds && one.slot == two.slot;
}

bool matches(const std::string& pattern, const std::string& path) {
  return stars_in(pattern, path).has_value();
}

void merge_into(MapEntry& entry, const MapEntry& more) {
  entry.order = std::min(entry.order, more.order);
  entry.tensors += more.tensors;
  entry.certainty = std::max(entry.certainty, more.certainty);
  entry.evidence.insert(more.evidence.begin(), more.evidence.end());
  if (more.error) {
    entry.error = std::max(entry.error.value_or(0.0), *more.error);
  }
  for (const std::string& option : more.options) {
    if (std::ranges::find(entry.options, option) == entry.options.end()) {
      entry.options.push_back(option);
    }
  }
}

class Patterns {
 public:
  explicit Patterns(std::vector<MapEntry> entries) : entries_(std::move(entries)) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].paths == without_slots(entries_[i].paths)) {
        for (PathGroup& pattern : generalised(entries_[i].paths)) {
          members_[{std::move(pattern), entries_[i].words}].push_back(i);
        }
      }
    }
  }

  // Every entry within the pattern that covers most entries and contradicts none.
  std::vector<MapEntry> result() {
    std::vector<const Members::value_type*> by_size;
    for (const auto& pattern : members_) {
      by_size.push_back(&pattern);
    }
    std::ranges::stable_sort(by_size, [](const auto* left, const auto* right) {
      return left->second.size() > right->second.size();
    });
    std::vector<bool> done(entries_.size(), false);
    std::vector<MapEntry> result;
    for (const auto* pattern : by_size) {
      const auto& [key, members] = *pattern;
      if (members.size() < 2 || is_contradicted(key.first, key.second) ||
          std::ranges::any_of(members, [&](std::size_t member) { return done[member]; })) {
        continue;
      }
      MapEntry entry = entries_[members.front()];
      entry.paths = key.first;
      for (const std::size_t member : members) {
        done[member] = true;
        if (member != members.front()) {
          merge_into(entry, entries_[member]);
        }
      }
      result.push_back(std::move(entry));
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (!done[i]) {
        result.push_back(std::move(entries_[i]));
      }
    }
    return result;
  }

 private:
  using Members = std::map<std::pair<PathGroup, EntryWords>, std::vector<std::size_t>>;

  [[nodiscard]] bool is_contradicted(const PathGroup& pattern, const EntryWords& words) const {
    return std::ranges::any_of(entries_, [&](const MapEntry& entry) {
      const PathGroup paths = without_slots(entry.paths);
      if (!same_scope(words, entry.words)) {
        return false;
      }
      return entry.words == words ? contradicts(pattern, paths) : any_pair(pattern, paths, matches);
    });
  }

  std::vector<MapEntry> entries_;
  Members members_;
};

// Whether an entry for `outer` also matches what `inner` names.
bool path_covers(const std::string& outer, const std::string& inner) {
  const auto ours = path_parts(outer);
  const auto theirs = path_parts(inner);
  if (ours.size() > theirs.size()) {
    return false;
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] != theirs[i] && ours[i] != "*" && theirs[i] != "*") {
      return false;
    }
  }
  return true;
}

bool covers(const PathGroup& outer, const PathGroup& inner) {
  return any_pair(outer, inner, path_covers);
}

// How much of a module an entry is for: the smaller comes first.
int extent(const MapEntry& entry) {
  const bool slot = entry.words.slot || entry.paths != without_slots(entry.paths);
  return slot ? 0 : entry.words.kinds.empty() ? 2 : 1;
}

// Whether `first` must stand before `second`.
bool precedes(const MapEntry& first, const MapEntry& second) {
  const PathGroup inner = without_slots(first.paths);
  const PathGroup outer = without_slots(second.paths);
  if (!covers(outer, inner) || extent(second) == 0) {
    return false;
  }
  return !covers(inner, outer) || extent(first) < extent(second);
}

}  // namespace

std::vector<MapEntry> with_stars(std::vector<MapEntry> entries) {
  std::vector<MapEntry> rest = Patterns(std::move(entries)).result();
  std::ranges::stable_sort(
      rest, {}, [](const MapEntry& entry) { return std::pair(extent(entry) != 0, entry.order); });
  std::vector<MapEntry> sorted;
  while (!rest.empty()) {
    auto next = std::ranges::find_if(rest, [&](const MapEntry& entry) {
      return std::ranges::none_of(
          rest, [&](const MapEntry& one) { return &one != &entry && precedes(one, entry); });
    });
    next = next == rest.end() ? rest.begin() : next;
    sorted.push_back(std::move(*next));
    rest.erase(next);
  }
  return sorted;
}

}  // namespace ttrace
