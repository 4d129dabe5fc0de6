#include "trace/samples/deal_samples.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Where a sample lies that keeps its place; nothing if the reference has no such place.
std::optional<SamplePlace> own_place(const DataRows& rows, const ClaimedSample& sample) {
  const auto found = rows.reference.find(sample.microbatch);
  return found != rows.reference.end() && found->second == sample.count
             ? std::optional(SamplePlace{sample.microbatch, sample.sample})
             : std::nullopt;
}

const std::set<std::int64_t>& of(const std::map<std::int64_t, std::set<std::int64_t>>& all,
                                 std::int64_t microbatch) {
  static const std::set<std::int64_t> kNone;
  const auto found = all.find(microbatch);
  return found == all.end() ? kNone : found->second;
}

}  // namespace

DealtSamples::DealtSamples(const DataRows& rows) : counts_(rows.reference) {
  deal(rows);
  keep_own_places(rows);
  connect(rows);
}

// Those with the fewest equals choose first.
void DealtSamples::deal(const DataRows& rows) {
  std::vector<const std::pair<const ClaimedSample, ReadSample>*> known;
  for (const auto& entry : rows.candidate) {
    places_.emplace(entry.first, std::nullopt);
    if (entry.second.equal) {
      known.push_back(&entry);
    }
  }
  std::ranges::stable_sort(
      known, {}, [](const auto* entry) { return entry->second.equal->size(); });
  for (const auto* entry : known) {
    const std::vector<SamplePlace>& equal = *entry->second.equal;
    const auto own = own_place(rows, entry->first);
    const auto is_free = [&](const SamplePlace& place) { return !readers_.contains(place); };
    const bool keeps = own && is_free(*own) && std::ranges::binary_search(equal, *own);
    const auto free = std::ranges::find_if(equal, is_free);
    const SamplePlace place = keeps ? *own : free == equal.end() ? equal.front() : *free;
    places_[entry->first] = place;
    readers_[place].push_back(entry->first);
  }
}

void DealtSamples::keep_own_places(const DataRows& rows) {
  std::set<std::pair<std::int64_t, std::int64_t>> moved;  // micro-batch and number of samples
  bool any_known = false;
  for (const auto& [sample, place] : places_) {
    any_known = any_known || place.has_value();
    const auto own = own_place(rows, sample);
    const bool is_foreign = rows.candidate.at(sample).is_foreign;
    if (place ? place != own : !own || is_foreign || readers_.contains(*own)) {
      moved.insert({sample.microbatch, sample.count});
    }
  }
  const auto has_own_place = [&](const auto& entry) {
    return own_place(rows, entry.first).has_value();
  };
  knows_nothing_ = !any_known && !std::ranges::all_of(places_, has_own_place);
  for (auto& [sample, place] : places_) {
    if (!place && !moved.contains({sample.microbatch, sample.count})) {
      place = own_place(rows, sample);
      readers_[*place].push_back(sample);
    }
  }
}

void DealtSamples::connect(const DataRows& rows) {
  for (const auto& [sample, place] : places_) {
    if (place) {
      targets_[sample.microbatch].insert(place->microbatch);
      sources_[place->microbatch].insert(sample.microbatch);
    } else {
      with_unknown_.insert(sample.microbatch);
    }
    const bool is_padded = place && rows.candidate.at(sample).padded.contains(place->microbatch);
    if (!place || place != own_place(rows, sample) || is_padded) {
      moved_.insert(sample.microbatch);
    }
  }
  for (const auto& [microbatch, count] : rows.reference) {
    const std::set<std::int64_t>& from = of(sources_, microbatch);
    const bool is_concerned =
        moved_.contains(microbatch) ||
        std::ranges::any_of(from, [&](std::int64_t source) { return moved_.contains(source); });
    if (!is_concerned) {
      continue;
    }
    bool is_complete = true;
    for (std::int64_t sample = 0; sample < count; ++sample) {
      is_complete = is_complete && readers({microbatch, sample}).size() == 1;
    }
    (is_complete ? complete_ : incomplete_).insert(microbatch);
  }
}

std::optional<SamplePlace> DealtSamples::place_of(const ClaimedSample& sample) const {
  const auto found = places_.find(sample);
  return found == places_.end() ? std::nullopt : found->second;
}

bool DealtSamples::is_natural(std::int64_t microbatch) const {
  std::int64_t next = 0;
  for (const auto& [sample, place] : places_) {
    if (place && place->microbatch == microbatch && place->sample != next++) {
      return false;
    }
  }
  return true;
}

std::optional<std::int64_t> DealtSamples::only_target(std::int64_t microbatch) const {
  const std::set<std::int64_t>& all = targets(microbatch);
  return all.size() == 1 && !with_unknown_.contains(microbatch) ? std::optional(*all.begin())
                                                                : std::nullopt;
}

const std::set<std::int64_t>& DealtSamples::targets(std::int64_t microbatch) const {
  return of(targets_, microbatch);
}

const std::set<std::int64_t>& DealtSamples::sources(std::int64_t microbatch) const {
  return of(sources_, microbatch);
}

std::vector<ClaimedSample> DealtSamples::readers(const SamplePlace& place) const {
  const auto found = readers_.find(place);
  return found == readers_.end() ? std::vector<ClaimedSample>() : found->second;
}

}  // namespace ttrace
