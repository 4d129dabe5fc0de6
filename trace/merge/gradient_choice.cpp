#include "trace/merge/gradient_choice.h"

#include "trace/base/kind.h"
#include "trace/merge/merge.h"
#include "trace/merge/shard_index.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kLooks = 5;
constexpr double kLeastFactor = 0.01;  // |a - 1|
constexpr double kAlike = 0.01;        // relative, of factors that are one
constexpr double kMostRest = 0.1;      // of ||c||

using Place = std::tuple<std::int64_t, std::int64_t, int>;  // step, micro-batch, rank

std::optional<std::vector<double>> numbers_of(std::span<const Shard> shards) {
  if (shards.empty()) {
    return std::nullopt;
  }
  const MergeResult merged = merge(shards);
  if (!merged.has_tensor() || !merged.findings.empty()) {
    return std::nullopt;
  }
  std::vector<double> numbers(static_cast<std::size_t>(element_count(merged.shape)));
  to_double(
      merged.type, merged.bytes.data(), static_cast<std::int64_t>(numbers.size()), numbers.data());
  return numbers;
}

// c = a r + e.
struct Multiple {
  double factor = 0.0;     // a
  double rest = 0.0;       // ||e|| / ||c||
  double deviation = 0.0;  // standard error of a, relative
  double unit = 0.0;       // relative error of one rounding of c
};

std::optional<Multiple> multiple_of(std::span<const double> r, std::span<const double> c) {
  if (r.size() != c.size()) {
    return std::nullopt;
  }
  double rr = 0.0;
  double rc = 0.0;
  double cc = 0.0;
  for (std::size_t i = 0; i < r.size(); ++i) {
    rr += r[i] * r[i];
    rc += r[i] * c[i];
    cc += c[i] * c[i];
  }
  if (!(rr > 0.0 && cc > 0.0) || !std::isfinite(rr + cc)) {
    return std::nullopt;
  }
  Multiple multiple{rc / rr, std::sqrt(std::max(0.0, 1.0 - rc / rr * rc / cc))};
  multiple.deviation = multiple.rest / std::sqrt(static_cast<double>(r.size()));
  return multiple;
}

// What one rank holds of a gradient, next to the reference's there.
std::optional<Multiple> multiple_at(const Shard& shard, std::span<const Shard> reference) {
  Placement place = shard.record->placement;
  const MergeResult whole = merge(reference);
  if (place.partial_count > 1 || place.flat || !has_elements(shard) || !whole.has_tensor() ||
      whole.held || whole.shape != place.logical_shape()) {
    return std::nullopt;
  }
  const auto logical = numbers_of(reference);
  const double scale = std::exchange(place.scale, 1.0);
  const auto count = static_cast<std::size_t>(element_count(shard.record->shape));
  std::vector<double> expected(count);
  std::vector<double> found(count);
  extract(place, ElementType::kF64, logical->data(), expected.data());
  to_double(shard.record->type, shard.bytes.data(), static_cast<std::int64_t>(count), found.data());
  for (double& number : found) {
    number *= scale;
  }
  auto multiple = multiple_of(expected, found);
  if (multiple) {
    multiple->unit = rounding_error(shard.record->type);
  }
  return multiple;
}

// Gradients of activations that both sides have, those nearest to the loss first.
std::map<Place, std::vector<Shard>> gradients_of(const Trace& candidate,
                                                 const ShardIndex& reference) {
  std::map<Place, std::vector<std::pair<std::uint64_t, Shard>>> ordered;
  for (const RankFile& file : candidate.files()) {
    for (const Record& record : file.records()) {
      const std::span<const Shard> expected = reference.of(record.id);
      if (record.id.kind == Kind::kGradOutput && !expected.empty() && record.norm > 0.0) {
        const int rank = file.layout().rank;
        ordered[{record.id.step, record.id.microbatch, rank}].emplace_back(
            expected.front().record->order, Shard{rank, &record, file.bytes(record)});
      }
    }
  }
  std::map<Place, std::vector<Shard>> gradients;
  for (auto& [place, shards] : ordered) {
    std::ranges::stable_sort(shards, {}, &std::pair<std::uint64_t, Shard>::first);
    for (const auto& [order, shard] : shards) {
      gradients[place].push_back(shard);
    }
  }
  return gradients;
}

// The factor of the first of these, if evenly chosen others have it, too.
std::optional<Multiple> shared_factor(const std::vector<Shard>& shards,
                                      const ShardIndex& reference) {
  std::optional<Multiple> first;
  const std::size_t looks = std::min(kLooks, shards.size());
  std::size_t seen = 0;
  for (std::size_t look = 0; look < looks; ++look) {
    const std::size_t at = looks == 1 ? 0 : look * (shards.size() - 1) / (looks - 1);
    const Shard& shard = shards[at];
    const auto multiple = multiple_at(shard, reference.of(shard.record->id));
    if (!multiple) {
      continue;
    }
    first = first ? first : multiple;
    if (multiple->rest > kMostRest ||
        std::abs(multiple->factor / first->factor - 1.0) > kAlike + 3.0 * multiple->deviation) {
      return std::nullopt;
    }
    ++seen;
  }
  return seen > 0 && first->factor > 0.0 ? first : std::nullopt;
}

bool is_choice(const Multiple& multiple) {
  return std::abs(multiple.factor - 1.0) > kLeastFactor;
}

// How far main gradients may be from the reference's.
struct Agreement {
  double factor = 0.02;  // |a - 1|
  double rest = 0.0;     // of ||c||
};

// Main gradients are nearer to 1 than any of these factors, and rounded as often as a backward
// rounds. Sums of micro-batches with factors of their own are right only if somebody weighs them.
Agreement agreement_for(std::span<const Multiple> factors) {
  constexpr double kRoundings = 32.0;
  constexpr double kLeastRest = 1e-4;
  constexpr double kOfSpread = 0.2;
  Agreement agreement;
  double unit = 0.0;
  double least = factors.front().factor;
  double most = least;
  for (const Multiple& multiple : factors) {
    if (is_choice(multiple)) {
      agreement.factor = std::min(agreement.factor, std::abs(multiple.factor - 1.0) / 4.0);
    }
    unit = std::max(unit, multiple.unit);
    least = std::min(least, multiple.factor);
    most = std::max(most, multiple.factor);
  }
  agreement.rest = std::max(kLeastRest, kRoundings * unit);
  const double spread = most / least - 1.0;
  if (spread > kAlike) {
    agreement.rest = std::min(agreement.rest, kOfSpread * spread);
  }
  return agreement;
}

bool main_gradients_agree(const ShardIndex& reference,
                          const Trace& candidate,
                          std::int64_t step,
                          const Agreement& agreement) {
  const ShardIndex own(candidate);
  std::size_t seen = 0;
  for (const StepTrace& trace : candidate.steps()) {
    for (const RankFile& file : trace.ranks) {
      for (const Record& record : file.records()) {
        const TensorId& id = record.id;
        if (id.step != step || id.kind != Kind::kMainGrad ||
            own.of(id).front().rank != file.layout().rank) {
          continue;
        }
        const auto r = numbers_of(reference.of(id));
        const auto c = numbers_of(own.of(id));
        const auto multiple = r && c ? multiple_of(*r, *c) : std::nullopt;
        const bool are_zero = r && c && !multiple;
        if (!are_zero && (!multiple || std::abs(multiple->factor - 1.0) > agreement.factor ||
                          multiple->rest > agreement.rest)) {
          return false;
        }
        seen += are_zero ? 0 : 1;
      }
    }
  }
  return seen > 0;
}

// The fraction with the smallest denominator from `low` to `high`, which are positive: a walk down
// the Stern-Brocot tree.
double simplest_fraction(double low, double high) {
  const double whole = std::floor(low);
  if (whole == low || whole + 1.0 <= high) {
    return whole == low ? whole : whole + 1.0;
  }
  return whole + 1.0 / simplest_fraction(1.0 / (high - whole), 1.0 / (low - whole));
}

// Of factors that are one, ascending.
double plain(std::span<const Multiple> alike) {
  constexpr double kLeast = 1e-6;
  const double least = alike.front().factor;
  const double most = alike.back().factor;
  double room = most / least - 1.0;
  for (const Multiple& multiple : alike) {
    room = std::max(room, 3.0 * multiple.deviation);
  }
  room = std::max(kLeast, std::min(room, kAlike / 2.0));
  const double middle = (least + most) / 2.0;
  return simplest_fraction(middle * (1.0 - room), middle * (1.0 + room));
}

// Factors that differ by no more than a rounding are one: what ranks hold alike must stay alike.
std::vector<GradientChoice> choices_among(std::vector<std::pair<Multiple, Place>> factors) {
  std::ranges::sort(factors, {}, [](const auto& one) { return one.first.factor; });
  std::vector<GradientChoice> choices;
  std::vector<Multiple> alike;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const Multiple& last = alike.emplace_back(factors[i].first);
    if (i + 1 < factors.size() && factors[i + 1].first.factor <= last.factor * (1.0 + last.unit)) {
      continue;
    }
    const double factor = plain(alike);
    for (std::size_t member = i + 1 - alike.size(); member <= i; ++member) {
      const auto& [step, microbatch, rank] = factors[member].second;
      choices.push_back({step, microbatch, rank, factor});
    }
    alike.clear();
  }
  return choices;
}

// Gradients of parameters whose scale follows from the main gradients (summed_gradients.h), and
// that are the reference's with it.
std::set<TensorId> scaled_already(const ShardIndex& reference, const Trace& candidate) {
  const ShardIndex own(candidate);
  std::set<TensorId> scaled;
  for (const RankFile& file : candidate.files()) {
    for (const Record& record : file.records()) {
      if (record.id.kind != Kind::kParamGrad || !record.undeclared ||
          record.placement.partial_count == 1 || scaled.contains(record.id)) {
        continue;
      }
      const auto r = numbers_of(reference.of(record.id));
      const auto c = numbers_of(own.of(record.id));
      const auto multiple = r && c ? multiple_of(*r, *c) : std::nullopt;
      if (multiple && !is_choice(*multiple)) {
        scaled.insert(record.id);
      }
    }
  }
  return scaled;
}

void take_out(const Place& place,
              double factor,
              const std::set<TensorId>& scaled,
              Trace& candidate) {
  const auto& [step, microbatch, rank] = place;
  for (RankFile& file : candidate.files()) {
    for (std::size_t i = 0; file.layout().rank == rank && i < file.records().size(); ++i) {
      const TensorId& id = file.records()[i].id;
      if (id.step == step && id.microbatch == microbatch && !scaled.contains(id) &&
          (traits_of(id.kind).has_gradient_scale || is_of_quantised_gradient(id.kind, id.slot))) {
        Placement placement = file.records()[i].placement;
        placement.scale /= factor;
        file.settle(i, std::move(placement));
      }
    }
  }
}

}  // namespace

std::vector<GradientChoice> settle_gradient_choices(const Trace& reference, Trace& candidate) {
  const ShardIndex expected(reference);
  std::map<Place, Multiple> factors;
  std::map<std::int64_t, std::vector<Multiple>> by_step;
  std::set<std::int64_t> refused;  // steps in which gradients share no factor, or no choice shows
  for (const auto& [place, shards] : gradients_of(candidate, expected)) {
    const std::int64_t step = std::get<0>(place);
    if (const auto factor = shared_factor(shards, expected)) {
      factors.emplace(place, *factor);
      by_step[step].push_back(*factor);
    } else {
      refused.insert(step);
    }
  }
  for (const auto& [step, multiples] : by_step) {
    if (refused.contains(step) || std::ranges::none_of(multiples, is_choice) ||
        !main_gradients_agree(expected, candidate, step, agreement_for(multiples))) {
      refused.insert(step);
    }
  }
  std::vector<std::pair<Multiple, Place>> chosen;
  for (const auto& [place, multiple] : factors) {
    if (!refused.contains(std::get<0>(place)) && is_choice(multiple)) {
      chosen.emplace_back(multiple, place);
    }
  }
  std::vector<GradientChoice> choices = choices_among(std::move(chosen));
  std::ranges::sort(choices, {}, [](const GradientChoice& choice) {
    return std::tuple(choice.step, choice.microbatch, choice.rank);
  });
  const std::set<TensorId> scaled =
      choices.empty() ? std::set<TensorId>() : scaled_already(expected, candidate);
  for (const GradientChoice& choice : choices) {
    take_out({choice.step, choice.microbatch, choice.rank}, choice.factor, scaled, candidate);
  }
  return choices;
}

}  // namespace ttrace
