#include "analysis/matching.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

struct Place {
  std::int64_t step = 0;
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
  bool in_reference = true;  // false sorts first: a candidate-only tensor precedes the next match
  int rank = 0;
  std::uint64_t own_order = 0;

  bool operator<(const Place& other) const {
    return std::tie(step, order, in_reference, rank, own_order) <
           std::tie(other.step, other.order, other.in_reference, other.rank, other.own_order);
  }
};

struct Entry {
  Place place;
  Match match;
};

using Entries = std::map<TensorId, Entry>;

// Returns the largest order number of every step.
std::map<std::int64_t, std::uint64_t> add_reference(const Trace& trace, Entries& entries) {
  std::map<std::int64_t, std::uint64_t> last;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      const int rank = file.layout().rank;
      for (const Record& record : file.records()) {
        const Place place{step.step, record.order, true, rank, record.order};
        Entry& entry = entries.try_emplace(record.id, Entry{place, {}}).first->second;
        entry.place = std::min(entry.place, place);
        entry.match.reference.push_back({rank, &record, file.bytes(record)});
        last[step.step] = std::max(last[step.step], record.order);
      }
    }
  }
  return last;
}

std::vector<const Record*> by_order(const RankFile& file) {
  std::vector<const Record*> records;
  records.reserve(file.records().size());
  for (const Record& record : file.records()) {
    records.push_back(&record);
  }
  std::stable_sort(records.begin(), records.end(), [](const Record* left, const Record* right) {
    return left->order < right->order;
  });
  return records;
}

void add_candidate_rank(const RankFile& file, int rank, Place next, Entries& entries) {
  next.in_reference = false;
  next.rank = rank;
  // Backwards, so that `next` is the place of the next record that the reference has too.
  const std::vector<const Record*> records = by_order(file);
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    const auto found = entries.find((*record)->id);
    if (found != entries.end() && found->second.place.in_reference) {
      next.step = found->second.place.step;
      next.order = found->second.place.order;
    } else {
      next.own_order = (*record)->order;
      Entry& entry = entries.try_emplace((*record)->id, Entry{next, {}}).first->second;
      entry.place = std::min(entry.place, next);
    }
  }
  for (const Record& record : file.records()) {
    entries.at(record.id).match.candidate.push_back({rank, &record, file.bytes(record)});
  }
}

void link_recomputed(std::vector<Match>& matches) {
  std::map<TensorId, std::size_t> positions;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (!matches[i].id.recompute) {
      positions.emplace(matches[i].id, i);
    }
  }
  for (Match& match : matches) {
    TensorId first = match.id;
    first.recompute = false;
    const auto found = positions.find(first);
    if (match.id.recompute && found != positions.end()) {
      match.first_forward = found->second;
    }
  }
}

}  // namespace

std::vector<Match> match(const Trace& reference, const Trace& candidate) {
  Entries entries;
  const auto last = add_reference(reference, entries);
  for (const StepTrace& step : candidate.steps()) {
    const auto end = last.find(step.step);
    const std::uint64_t after = end == last.end() ? 0 : end->second + 1;
    for (const RankFile& file : step.ranks) {
      add_candidate_rank(file, file.layout().rank, Place{step.step, after}, entries);
    }
  }

  std::vector<Entry*> sorted;
  sorted.reserve(entries.size());
  for (auto& [id, entry] : entries) {
    entry.match.id = id;
    entry.match.order = entry.place.order;
    sorted.push_back(&entry);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry* left, const Entry* right) {
    return left->place < right->place;
  });

  std::vector<Match> matches;
  matches.reserve(sorted.size());
  for (Entry* entry : sorted) {
    matches.push_back(std::move(entry->match));
  }
  link_recomputed(matches);
  return matches;
}

std::vector<Match> tensors_of(const Trace& trace) {
  return match(trace, Trace());
}

}  // namespace ttrace
