#include "analysis/checks/rank_sums.h"

#include "analysis/align/module_path.h"
#include "trace/sums/squared.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace ttrace {
namespace {

// Coordinates on the data-parallel axes: equal for ranks that have the same samples.
using Samples = std::vector<int>;

Samples samples_of(const Layout& layout, const ModelVocabulary& vocabulary) {
  Samples samples;
  for (const Axis& axis : layout.axes) {
    if (vocabulary.is(Role::kDataParallel, axis.name)) {
      samples.push_back(axis.coordinate);
    }
  }
  return samples;
}

// e^2 / u^2 of a sum of p addends; see rank_sums.h.
double rounded_norm(int ranks, double addends, double sum) {
  const double p = ranks;
  return (1.0 + (p + 1.0) / 6.0 - 1.0 / p) * addends + (p + 1.0) / 3.0 * sum;
}

// The part of e^2 that one rank's addend has, of squared norm `addend`.
double of_addend(const RoundedSum& sum, double addend, double norm_squared) {
  return squared(unit_of(sum.type)) * rounded_norm(sum.addends, addend, norm_squared / sum.addends);
}

// The roundings of the ranks' stored addends, if there are any.
double stored_addends(const Match& match) {
  if (match.candidate.front().record->placement.partial_count == 1) {
    return 0.0;
  }
  double sum = 0.0;
  for (const Shard& shard : match.candidate) {
    sum +=
        squared(unit_of(shard.record->type) * shard.record->norm * shard.record->placement.scale);
  }
  return sum;
}

// The same by index of the last dimension. Empty where a part has none, or no elements.
std::vector<double> stored_by_column(const Match& match, std::size_t columns) {
  std::vector<double> rounded(columns);
  for (const Shard& shard : match.candidate) {
    const Record& record = *shard.record;
    const Placement& placement = record.placement;
    if (placement.flat || placement.dims.empty() || !has_elements(shard) ||
        placement.dims.back().logical_size != static_cast<std::int64_t>(columns)) {
      return {};
    }
    const DimPlacement& last = placement.dims.back();
    const double unit = squared(unit_of(record.type) * placement.scale);
    std::vector<double> row(static_cast<std::size_t>(last.local_size));
    const std::size_t size = row.size() * element_size(record.type);
    for (std::size_t at = 0; size > 0 && at < shard.bytes.size(); at += size) {
      to_double(record.type, shard.bytes.data() + at, last.local_size, row.data());
      for (const Segment& segment : last.segments) {
        for (std::int64_t i = 0; i < segment.extent; ++i) {
          const double value = row[static_cast<std::size_t>(segment.local + i)];
          rounded[static_cast<std::size_t>(segment.logical + i)] +=
              std::isfinite(value) ? unit * squared(value) : 0.0;
        }
      }
    }
  }
  return rounded;
}

}  // namespace

RankSums::RankSums(const Trace& candidate) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  std::set<Key> main_grads;
  for (const RankFile& file : candidate.files()) {
    data_parallel_ =
        std::max(data_parallel_, vocabulary.axis_size(Role::kDataParallel, file.layout()));
    ring_ =
        std::max<std::int64_t>(ring_, vocabulary.axis_size(Role::kContextParallel, file.layout()));
    for (const RoundedSum& sum : file.sums()) {
      collectives_[sum.id].push_back(sum);
    }
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kParam) {
        parameters_.emplace(record.id.path, record.type);
      } else if (record.id.kind == Kind::kParamGrad) {
        add_addend(record);
      } else if (record.id.kind == Kind::kMainGrad) {
        main_grads.emplace(record.id.step, record.id.path);
      }
    }
  }
  std::set<Key> modules;  // of the parameters whose addends nobody recorded
  for (const Key& key : main_grads) {
    if (parameters_.contains(key.second) && !addends_.contains(key)) {
      modules.emplace(key.first, module_of(key.second));
    }
  }
  if (!modules.empty()) {
    look_among_copies(candidate, vocabulary, modules);
  }
}

void RankSums::add_addend(const Record& record) {
  Addends& addends = addends_[{record.id.step, record.id.path}];
  const double norm = record.norm * record.placement.scale;
  addends.ranks = std::max(addends.ranks, record.placement.partial_count);
  addends.squared += norm * norm;
}

void RankSums::look_among_copies(const Trace& candidate,
                                 const ModelVocabulary& vocabulary,
                                 const std::set<Key>& modules) {
  std::map<std::tuple<Key, Samples, std::uint64_t>, int> copies;
  std::map<std::tuple<Key, std::int64_t, Samples>, std::uint64_t> first;
  for (const RankFile& file : candidate.files()) {
    const Samples samples = samples_of(file.layout(), vocabulary);
    for (const Record& record : file.records()) {
      const TensorId& id = record.id;
      if (is_without_addends(id)) {
        const Key key{id.step, id.path};
        int& largest = copies_[key];
        largest = std::max(largest, ++copies[{key, samples, record.digest}]);
      } else if (id.kind == Kind::kGradOutput && id.slot == 0 &&
                 modules.contains({id.step, id.path})) {
        const Key key{id.step, id.path};
        const auto [found, is_new] =
            first.try_emplace({key, id.microbatch, samples}, record.digest);
        if (!is_new && found->second != record.digest) {
          cut_gradients_.emplace(key, record.type);
        }
      }
    }
  }
}

bool RankSums::is_without_addends(const TensorId& id) const {
  return id.kind == Kind::kMainGrad && parameters_.contains(id.path) &&
         !addends_.contains({id.step, id.path});
}

// Every rank of a sum has its own part; the second term of e^2 is shared out among them. Of a sum
// that nobody saw, the ranks share p times what the operators themselves round.
double RankSums::of_collectives(const Match& match, double norm_squared, double own) const {
  const auto found = collectives_.find(match.id);
  if (found == collectives_.end()) {
    return 0.0;
  }
  const double scale = squared(match.candidate.front().record->placement.scale);
  double result = 0.0;
  for (const RoundedSum& sum : found->second) {
    result += sum.squared ? of_addend(sum, *sum.squared * scale, norm_squared) : own;
  }
  return result;
}

std::vector<double> RankSums::by_column(const Match& match, std::span<const double> columns) const {
  const Placement& placement = match.candidate.front().record->placement;
  if (placement.partial_count > 1) {
    return stored_by_column(match, columns.size());
  }
  const auto found = collectives_.find(match.id);
  const bool all_told =
      found != collectives_.end() && std::ranges::all_of(found->second, [&](const RoundedSum& sum) {
        return sum.by_column.size() == columns.size();
      });
  if (!all_told) {
    return {};
  }
  const double scale = squared(placement.scale);
  std::vector<double> rounded(columns.size());
  for (const RoundedSum& sum : found->second) {
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      rounded[i] += of_addend(sum, sum.by_column[i] * scale, columns[i]);
    }
  }
  return rounded;
}

double RankSums::among_copies(const TensorId& id) const {
  const auto gradient = cut_gradients_.find({id.step, module_of(id.path)});
  const auto copies = copies_.find({id.step, id.path});
  return gradient == cut_gradients_.end() || copies == copies_.end()
             ? 0.0
             : squared(unit_of(gradient->second)) * (copies->second - 1);
}

double RankSums::of_gradients(const Match& match, double norm_squared) const {
  if (match.id.kind != Kind::kMainGrad) {
    return 0.0;
  }
  const ElementType type = match.candidate.front().record->type;
  const double unit = unit_of(type);
  const bool rounds_every_sum = unit == rounding_error(type);
  const auto found = addends_.find({match.id.step, match.id.path});
  if (found != addends_.end()) {
    const Addends& addends = found->second;
    return addends.ranks == 1 || !rounds_every_sum
               ? 0.0
               : squared(unit) * rounded_norm(addends.ranks, addends.squared, norm_squared);
  }
  const auto parameter = parameters_.find(match.id.path);
  if (parameter == parameters_.end()) {
    return 0.0;
  }
  const double data_parallel = rounds_every_sum ? squared(unit) * (data_parallel_ - 1) : 0.0;
  return (squared(unit_of(parameter->second)) + data_parallel + among_copies(match.id)) *
         norm_squared;
}

double RankSums::squared_rounding(const Match& match, double norm_squared, double own) const {
  return stored_addends(match) + of_collectives(match, norm_squared, own) +
         of_gradients(match, norm_squared);
}

double RankSums::of_ring(const TensorId& id, double own) const {
  return id.kind == Kind::kGradInput ? 2.0 * static_cast<double>(ring_ - 1) * own : 0.0;
}

}  // namespace ttrace
