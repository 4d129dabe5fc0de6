#include "analysis/checks/gradient_sums.h"

#include "analysis/align/module_path.h"

#include <algorithm>
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

}  // namespace

GradientSums::GradientSums(const Trace& candidate, const Allowances& allowances)
    : allowances_(allowances) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  std::set<Key> main_grads;
  for (const RankFile& file : candidate.files()) {
    data_parallel_ =
        std::max(data_parallel_, vocabulary.axis_size(Role::kDataParallel, file.layout()));
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

void GradientSums::add_addend(const Record& record) {
  Addends& addends = addends_[{record.id.step, record.id.path}];
  const double norm = record.norm * record.placement.scale;
  addends.ranks = std::max(addends.ranks, record.placement.partial_count);
  addends.squared += norm * norm;
}

void GradientSums::look_among_copies(const Trace& candidate,
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

bool GradientSums::is_without_addends(const TensorId& id) const {
  return id.kind == Kind::kMainGrad && parameters_.contains(id.path) &&
         !addends_.contains({id.step, id.path});
}

double GradientSums::squared_among_copies(const TensorId& id) const {
  const auto gradient = cut_gradients_.find({id.step, module_of(id.path)});
  const auto copies = copies_.find({id.step, id.path});
  if (gradient == cut_gradients_.end() || copies == copies_.end()) {
    return 0.0;
  }
  const double unit = default_unit(gradient->second, allowances_);
  return unit * unit * (copies->second - 1);
}

double GradientSums::squared_rounding(const TensorId& id, ElementType type, double squared) const {
  if (id.kind != Kind::kMainGrad) {
    return 0.0;
  }
  const double unit = default_unit(type, allowances_);
  const bool rounds_every_sum = unit == rounding_error(type);
  const auto found = addends_.find({id.step, id.path});
  if (found != addends_.end()) {
    const Addends& addends = found->second;
    return addends.ranks == 1 || !rounds_every_sum || !allowances_.has(Allowance::kBucketSums)
               ? 0.0
               : unit * unit * (addends.squared + (addends.ranks - 1) * squared);
  }
  const auto parameter = parameters_.find(id.path);
  if (parameter == parameters_.end() || !allowances_.has(Allowance::kUnrecordedAddends)) {
    return 0.0;
  }
  const double own = default_unit(parameter->second, allowances_);
  const double data_parallel = rounds_every_sum ? unit * unit * (data_parallel_ - 1) : 0.0;
  return (own * own + data_parallel + squared_among_copies(id)) * squared;
}

}  // namespace ttrace
