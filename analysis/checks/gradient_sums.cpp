#include "analysis/checks/gradient_sums.h"

#include "analysis/align/model_vocabulary.h"

#include <algorithm>

namespace ttrace {

GradientSums::GradientSums(const Trace& candidate, const Limits& limits)
    : allowances_(limits.allowances()) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  for (const StepTrace& step : candidate.steps()) {
    for (const RankFile& file : step.ranks) {
      data_parallel_ =
          std::max(data_parallel_, vocabulary.axis_size(Role::kDataParallel, file.layout()));
      for (const Record& record : file.records()) {
        if (record.id.kind == Kind::kParam) {
          parameters_.emplace(record.id.path, record.type);
        } else if (record.id.kind == Kind::kParamGrad) {
          Addends& addends = addends_[{record.id.step, record.id.path}];
          const double norm = record.norm * record.placement.scale;
          addends.ranks = std::max(addends.ranks, record.placement.partial_count);
          addends.squared += norm * norm;
        }
      }
    }
  }
}

bool GradientSums::is_without_addends(const TensorId& id) const {
  return id.kind == Kind::kMainGrad && parameters_.contains(id.path) &&
         !addends_.contains({id.step, id.path});
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
  return (own * own + (rounds_every_sum ? unit * unit * (data_parallel_ - 1) : 0.0)) * squared;
}

}  // namespace ttrace
