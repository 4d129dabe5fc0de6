#include "analysis/align/matching.h"

#include "analysis/align/index_by_id.h"
#include "analysis/align/module_path.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/merge/draws.h"
#include "trace/merge/routing.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ttrace {
namespace {

struct Place {
  std::int64_t step = 0;
  std::uint64_t order = std::numeric_limits<std::uint64_t>::max();
  bool in_reference = true;  // false sorts first: a candidate-only tensor precedes the next match
  int rank = 0;
  std::uint64_t own_order = 0;

  auto operator<=>(const Place&) const = default;
};

struct Entry {
  Place place;
  Match match;
};

// Found by their ids, which stay where the traces have them.
class Entries {
 public:
  explicit Entries(std::size_t expected) {
    entries_.reserve(expected);
    positions_.reserve(expected);
  }

  // Null if there is none. Valid until the next entry is added.
  [[nodiscard]] Entry* find(const TensorId& id) {
    const auto found = positions_.find(id);
    return found == positions_.end() ? nullptr : &entries_[found->second];
  }
  // The entry of `id`, new at `place` where there was none.
  Entry& at_or_new(const TensorId& id, const Place& place) {
    const auto [position, is_new] = positions_.try_emplace(std::cref(id), entries_.size());
    if (is_new) {
      entries_.push_back({place, {}});
      entries_.back().match.id = id;
    }
    return entries_[position->second];
  }
  [[nodiscard]] std::vector<Entry>& all() { return entries_; }

 private:
  using IdReference = std::reference_wrapper<const TensorId>;
  std::vector<Entry> entries_;
  std::unordered_map<IdReference, std::size_t, TensorIdHash, std::equal_to<TensorId>> positions_;
};

std::size_t count_records(const Trace& trace) {
  std::size_t count = 0;
  for (const RankFile& file : trace.files()) {
    count += file.records().size();
  }
  return count;
}

// The order numbers of the records of several ranks, which count on their own: clocks tell which
// came first, so that a stage comes after the one whose outputs it takes. Empty for one rank, and
// where files have no times.
std::unordered_map<const Record*, std::uint64_t> orders_of(const StepTrace& step) {
  std::unordered_map<const Record*, std::uint64_t> orders;
  const auto has_times = [](const RankFile& file) { return file.began().has_value(); };
  if (step.ranks.size() < 2 || !std::ranges::all_of(step.ranks, has_times)) {
    return orders;
  }
  std::vector<std::pair<std::uint64_t, const Record*>> records;
  for (const RankFile& file : step.ranks) {
    for (const Record& record : file.records()) {
      records.emplace_back(*file.began() + record.time, &record);
    }
  }
  std::ranges::stable_sort(
      records, {}, [](const auto& timed) { return std::pair(timed.first, timed.second->order); });
  std::unordered_set<TensorId, TensorIdHash> seen;
  for (const auto& [time, record] : records) {
    orders.emplace(record, seen.size());
    seen.insert(record->id);
  }
  return orders;
}

// Returns the largest order number of every step.
std::map<std::int64_t, std::uint64_t> add_reference(const Trace& trace, Entries& entries) {
  std::map<std::int64_t, std::uint64_t> last;
  for (const StepTrace& step : trace.steps()) {
    const auto orders = orders_of(step);
    for (const RankFile& file : step.ranks) {
      const int rank = file.layout().rank;
      for (const Record& record : file.records()) {
        const std::uint64_t order = orders.empty() ? record.order : orders.at(&record);
        const Place place{step.step, order, true, rank, order};
        Entry& entry = entries.at_or_new(record.id, place);
        entry.place = std::min(entry.place, place);
        entry.match.reference.push_back(shard_of(file, record));
        last[step.step] = std::max(last[step.step], order);
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
  std::ranges::stable_sort(records, {}, &Record::order);
  return records;
}

void add_candidate_rank(const RankFile& file, int rank, Place next, Entries& entries) {
  next.in_reference = false;
  next.rank = rank;
  // Backwards, so that `next` is the place of the next record that the reference has too.
  const std::vector<const Record*> records = by_order(file);
  for (auto record = records.rbegin(); record != records.rend(); ++record) {
    Entry* entry = entries.find((*record)->id);
    if (entry != nullptr && entry->place.in_reference) {
      next.step = entry->place.step;
      next.order = entry->place.order;
    } else {
      next.own_order = (*record)->order;
      entry = &entries.at_or_new((*record)->id, next);
      entry->place = std::min(entry->place, next);
    }
    entry->match.candidate.push_back(shard_of(file, **record));
  }
}

// Where choices of experts stand in the list, by the module around the router.
class ChoicesByModule {
 public:
  void add(const TensorId& id, std::size_t position) {
    positions_.emplace(Key{id.step, id.microbatch, id.call, parent_of(id.path)}, position);
  }
  [[nodiscard]] std::optional<std::size_t> nearest(const TensorId& id) const {
    Key key{id.step, id.microbatch, id.call, id.path};
    auto& module = std::get<std::string>(key);
    auto found = positions_.find(key);
    while (found == positions_.end() && !module.empty()) {
      module = parent_of(module);
      found = positions_.find(key);
    }
    return found == positions_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  using Key = std::tuple<std::int64_t, std::int64_t, int, std::string>;

  [[nodiscard]] static std::string parent_of(const std::string& path) {
    const std::size_t end = path.rfind('.');
    return end == std::string::npos ? std::string() : path.substr(0, end);
  }

  std::map<Key, std::size_t> positions_;
};

bool is_activation_or_its_gradient(Kind kind) {
  return kind == Kind::kOutput || kind == Kind::kInput || kind == Kind::kGradOutput ||
         kind == Kind::kGradInput;
}

// Lets tensors know where others stand that they are judged with.
void link(std::vector<Match>& matches) {
  const bool any = std::any_of(matches.begin(), matches.end(), [](const Match& match) {
    return match.id.recompute || is_choices(match.id) || match.id.kind == Kind::kOperand ||
           match.id.kind == Kind::kMaster;
  });
  if (!any) {
    return;
  }
  const IndexById<const Match> by_id(matches);
  ChoicesByModule choices;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (is_choices(matches[i].id) && !matches[i].id.recompute) {
      choices.add(matches[i].id, i);
    }
  }
  const auto find = [&](const TensorId& id) {
    const Match* const found = by_id.find(id);
    return found == nullptr ? std::nullopt
                            : std::optional(static_cast<std::size_t>(found - matches.data()));
  };
  for (Match& match : matches) {
    TensorId other = match.id;
    if (match.id.recompute) {
      other.recompute = false;
      match.first_forward = find(other);
    }
    other = match.id;
    if (is_choices(match.id)) {
      other.slot = kMarginsSlot;
      match.margins = find(other);
    } else if (is_activation_or_its_gradient(match.id.kind)) {
      match.choices = choices.nearest(match.id);
    } else if (match.id.kind == Kind::kOperand) {
      match.scale = find(as_kind(match.id, Kind::kScale));
    } else if (match.id.kind == Kind::kScale) {
      match.operand = find(as_kind(match.id, Kind::kOperand));
    } else if (match.id.kind == Kind::kParamNext) {
      match.master = find(as_kind(match.id, Kind::kMaster));
    }
  }
}

std::vector<Match> all_of(const Trace& reference, const Trace& candidate) {
  Entries entries(count_records(reference));
  const auto last = add_reference(reference, entries);
  for (const StepTrace& step : candidate.steps()) {
    const auto end = last.find(step.step);
    const std::uint64_t after = end == last.end() ? 0 : end->second + 1;
    for (const RankFile& file : step.ranks) {
      add_candidate_rank(file, file.layout().rank, Place{step.step, after}, entries);
    }
  }

  std::vector<Entry*> sorted;
  sorted.reserve(entries.all().size());
  for (Entry& entry : entries.all()) {
    entry.match.order = entry.place.order;
    sorted.push_back(&entry);
  }
  std::sort(sorted.begin(), sorted.end(), [](const Entry* left, const Entry* right) {
    return std::tie(left->place, left->match.id) < std::tie(right->place, right->match.id);
  });

  std::vector<Match> matches;
  matches.reserve(sorted.size());
  for (Entry* entry : sorted) {
    matches.push_back(std::move(entry->match));
  }
  return matches;
}

}  // namespace

std::vector<Match> match(const Trace& reference, const Trace& candidate) {
  std::vector<Match> matches = all_of(reference, candidate);
  std::erase_if(matches, [](const Match& match) { return is_draw_of_data(match.id); });
  link(matches);
  return matches;
}

std::vector<Match> tensors_of(const Trace& trace) {
  std::vector<Match> matches = all_of(trace, Trace());
  link(matches);
  return matches;
}

}  // namespace ttrace
