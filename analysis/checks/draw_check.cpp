#include "analysis/checks/draw_check.h"

#include "analysis/align/index_by_id.h"
#include "analysis/checks/structure.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

using Place = std::pair<std::int64_t, std::int64_t>;  // step, micro-batch

Place place_of(const TensorId& id) {
  return {id.step, id.microbatch};
}

bool is_draw(const TensorId& id) {
  return id.kind == Kind::kDraw && !id.recompute;
}

// -log of the probability that two draws with these frequencies of values are equal by chance. Of a
// long draw the first elements are enough.
double surprise(std::span<const std::byte> bytes, ElementType type) {
  constexpr std::size_t kEnough = 4096;
  const std::size_t size = element_size(type);
  const std::size_t count = std::min(bytes.size() / size, kEnough);
  std::map<std::string_view, double> frequencies;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string_view value(reinterpret_cast<const char*>(bytes.data() + i * size), size);
    frequencies[value] += 1.0 / static_cast<double>(count);
  }
  double collision = 0.0;
  for (const auto& [value, frequency] : frequencies) {
    collision += frequency * frequency;
  }
  return count == 0 ? 0.0 : -std::log(collision) * static_cast<double>(count);
}

// Ranks that drew the same numbers for different parts of one tensor; empty if there are none.
std::vector<int> with_equal_draws(std::span<const Shard> shards) {
  constexpr double kNoChance = 20.0;
  std::map<std::string_view, std::vector<const Shard*>> by_bytes;
  for (const Shard& shard : shards) {
    by_bytes[{reinterpret_cast<const char*>(shard.bytes.data()), shard.bytes.size()}].push_back(
        &shard);
  }
  for (const auto& [bytes, holders] : by_bytes) {
    const Shard& first = *holders.front();
    const bool differ = std::ranges::any_of(holders, [&](const Shard* other) {
      return other->record->placement.dims != first.record->placement.dims;
    });
    if (differ && surprise(first.bytes, first.record->type) > kNoChance) {
      std::vector<int> ranks;
      for (const Shard* const holder : holders) {
        ranks.push_back(holder->rank);
      }
      return ranks;
    }
  }
  return {};
}

// Axes on which the coordinates of these ranks differ.
std::vector<std::string> differing_axes(const Trace& trace,
                                        std::int64_t step,
                                        std::span<const int> ranks) {
  std::optional<Layout> first;
  std::set<std::string> axes;
  for (const StepTrace& stored : trace.steps()) {
    for (const RankFile& file : stored.ranks) {
      const Layout& layout = file.layout();
      if (stored.step != step || std::ranges::find(ranks, layout.rank) == ranks.end()) {
        continue;
      }
      first = first ? first : std::optional(layout);
      for (const Axis& axis : layout.axes) {
        if (axis.follows.empty() && axis.coordinate != first->coordinate(axis.name)) {
          axes.insert(axis.name);
        }
      }
    }
  }
  return {axes.begin(), axes.end()};
}

// Nobody declares where it lies, and the ranks hold different values.
bool is_nowhere(const TensorVerdict& tensor, const Match& match) {
  const bool is_guess = std::ranges::any_of(
      match.candidate, [](const Shard& shard) { return shard.record->undeclared; });
  return is_guess && tensor.fails(Question::kStructure);
}

bool is_unfollowed(const TensorVerdict& tensor, const Match& match) {
  return tensor.fails(Question::kShape) || tensor.fails(Question::kType) ||
         tensor.fails(Question::kExact) || is_nowhere(tensor, match) ||
         (!match.reference.empty() && !is_readable_draw(match.reference)) ||
         (!match.candidate.empty() && !is_readable_draw(match.candidate));
}

// Micro-batches in which one side has draws that the other one does not have.
struct OneSidedDraws {
  std::set<Place> reference;
  std::set<Place> candidate;

  explicit OneSidedDraws(std::span<const TensorVerdict> tensors) {
    for (const TensorVerdict& tensor : tensors) {
      if (is_draw(tensor.id) && tensor.fails(Question::kPresence)) {
        (tensor.is_in_reference ? reference : candidate).insert(place_of(tensor.id));
      }
    }
  }
};

// Whether all that is wrong may follow from other random numbers: what a side says against itself
// does not.
bool may_follow_from_draws(const TensorVerdict& tensor) {
  return tensor.is_wrong() && std::ranges::all_of(tensor.checks, [](const Check& check) {
           return check.holds || is_about_size(check.question) ||
                  check.question == Question::kFinite;
         });
}

}  // namespace

bool has_other_draws(const Draws& reference, const Draws& candidate) {
  const bool follows_data = data_of_its_own(reference, candidate).has_value();
  return std::ranges::any_of(candidate.all(), [&](const auto& entry) {
    if (is_draw_of_data(entry.first) && !follows_data) {
      return false;
    }
    const auto own = reference.of(entry.first);
    const auto other = own ? whole_draw(entry.second) : std::nullopt;
    return own && other && own->shape == other->shape && !is_same(*own, *other);
  });
}

void check_draws(const Trace& candidate,
                 std::span<const Match> matches,
                 std::span<TensorVerdict> tensors,
                 const ModelVocabulary& vocabulary,
                 std::vector<std::string>& notes) {
  const IndexById<const Match> by_id(matches);
  std::optional<TensorId> of_samples;
  for (TensorVerdict& tensor : tensors) {
    const Match* const match = is_draw(tensor.id) ? by_id.find(tensor.id) : nullptr;
    if (match == nullptr || match->candidate.size() < 2) {
      continue;
    }
    const std::vector<int> ranks = with_equal_draws(match->candidate);
    const std::vector<std::string> axes = differing_axes(candidate, tensor.id.step, ranks);
    const bool only_samples = std::ranges::all_of(
        axes, [&](const std::string& axis) { return vocabulary.is(Role::kDataParallel, axis); });
    if (ranks.empty() || only_samples) {
      of_samples = ranks.empty() || of_samples ? of_samples : std::optional(tensor.id);
      continue;
    }
    tensor.add(failed(
        Question::kDraws,
        fmt::format("{} drew the same random numbers for different parts of one tensor; they "
                    "should differ along {}",
                    ranks_text(ranks),
                    fmt::join(axes, " and ")),
        ranks));
  }
  if (of_samples) {
    notes.push_back(fmt::format(
        "candidate: data-parallel ranks draw the same random numbers for different samples, first "
        "at {}: they have the same seed",
        to_string(*of_samples)));
  }
}

HiddenDraws hidden_draws(std::span<const UnseenPart> parts) {
  const auto has = [&](Names side) {
    return std::ranges::any_of(parts, [&](const UnseenPart& part) {
      return part.kind == NotSeenKind::kRandom && part.side.value_or(side) == side;
    });
  };
  return {has(Names::kReference), has(Names::kCandidate)};
}

Excuses behind_draws(std::span<const Match> matches,
                     std::span<const TensorVerdict> tensors,
                     const HiddenDraws& hidden) {
  const IndexById<const Match> by_id(matches);
  const OneSidedDraws one_sided(tensors);
  Excuses excuses(tensors.size());
  std::map<Place, TensorId> unfollowed;
  std::optional<TensorId> first;  // of any micro-batch
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorVerdict& tensor = tensors[i];
    const Place place = place_of(tensor.id);
    if (is_draw(tensor.id)) {
      const bool has_counterpart = tensor.is_in_reference
                                       ? hidden.candidate || one_sided.candidate.contains(place)
                                       : hidden.reference || one_sided.reference.contains(place);
      const Match* const match = by_id.find(tensor.id);
      if (tensor.fails(Question::kPresence) ? has_counterpart
                                            : match != nullptr && is_unfollowed(tensor, *match)) {
        excuses[i] = Excused{Excuse::kRandom, "the reference could not follow these numbers"};
        unfollowed.emplace(place, tensor.id);
        first = first ? first : std::optional(tensor.id);
      }
      continue;
    }
    const auto found = unfollowed.find(place);
    const bool is_later =
        first && (tensor.id.microbatch == kNoMicrobatch || tensor.id.step > first->step);
    if ((found != unfollowed.end() || is_later) && may_follow_from_draws(tensor)) {
      excuses[i] =
          Excused{Excuse::kRandom,
                  fmt::format("not judged: random numbers before it, {}, could not be followed",
                              to_string(found == unfollowed.end() ? *first : found->second))};
    }
  }
  return excuses;
}

}  // namespace ttrace
