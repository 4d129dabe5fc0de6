#include "analysis/checks/gradient_sums.h"

#include "analysis/align/model_vocabulary.h"

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

GradientSums::GradientSums(const Trace& candidate, const Limits& limits)
    : allowances_(limits.allowances()) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  std::map<std::tuple<std::int64_t, std::int64_t, std::string, Samples>, std::uint64_t> first;
  std::map<std::tuple<Key, Samples, std::uint64_t>, int> copies;
  for (const StepTrace& step : candidate.steps()) {
    for (const RankFile& file : step.ranks) {
      data_parallel_ =
          std::max(data_parallel_, vocabulary.axis_size(Role::kDataParallel, file.layout()));
      const Samples samples = samples_of(file.layout(), vocabulary);
      for (const Record& record : file.records()) {
        const TensorId& id = record.id;
        if (id.kind == Kind::kParam) {
          parameters_.emplace(id.path, record.type);
        } else if (id.kind == Kind::kParamGrad) {
          Addends& addends = addends_[{id.step, id.path}];
          const double norm = record.norm * record.placement.scale;
          addends.ranks = std::max(addends.ranks, record.placement.partial_count);
          addends.squared += norm * norm;
        } else if (id.kind == Kind::kMainGrad) {
          const Key key{id.step, id.path};
          int& largest = copies_[key];
          largest = std::max(largest, ++copies[{key, samples, record.digest}]);
        } else if (id.kind == Kind::kGradOutput && id.slot == 0) {
          const auto [found, is_new] =
              first.try_emplace({id.step, id.microbatch, id.path, samples}, record.digest);
          if (!is_new && found->second != record.digest) {
            cut_gradients_.emplace(Key{id.step, id.path}, record.type);
          }
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
  const std::string module = id.path.substr(0, id.path.rfind('.'));
  const auto gradient = cut_gradients_.find({id.step, module});
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
