#include "analysis/checks/clipping_norms.h"

#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/bounds.h"
#include "trace/base/unit_in_last_place.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <string>

namespace ttrace {
namespace {

struct Step {
  std::map<TensorId, double> norms;      // all ranks have the same
  double gradients = 0.0;                // elements
  ElementType type = ElementType::kF32;  // the coarsest of theirs
  bool has_sketches = false;             // of gradients
};

Step read(const StepTrace& trace, const ModelVocabulary& vocabulary) {
  Step result;
  std::set<std::string> counted;
  for (const RankFile& file : trace.ranks) {
    for (const Record& record : file.records()) {
      const std::span<const std::byte> bytes = file.bytes(record);
      double value = 0.0;
      result.has_sketches =
          result.has_sketches || (record.id.kind == Kind::kMainGrad && record.keep != Keep::kBytes);
      if (record.id.kind == Kind::kMainGrad && counted.insert(record.id.path).second) {
        result.gradients += static_cast<double>(element_count(record.placement.logical_shape()));
        result.type = coarser(result.type, record.type);
      } else if (vocabulary.is_scalar(Role::kGradientNorm, record.id) &&
                 record.type == ElementType::kF64 && bytes.size() == sizeof value) {
        file.require_intact(record);
        std::memcpy(&value, bytes.data(), sizeof value);
        result.norms.emplace(record.id, value);
      }
    }
  }
  return result;
}

bool is_number_of(ElementType type, double value) {
  std::array<std::byte, sizeof(double)> stored{};
  double rounded = 0.0;
  from_double(type, &value, 1, stored.data());
  to_double(type, stored.data(), 1, &rounded);
  return rounded == value;
}

}  // namespace

double rounding_of_stored_norm(ElementType type, double norm) {
  const bool is_lower = coarser(type, ElementType::kF32) == type && type != ElementType::kF32;
  return is_lower && is_number_of(type, norm)
             ? 2.0 * kLargestOverUsualRounding * rounding_error(type)
             : 0.0;
}

ClippingNorms::ClippingNorms(const Trace& candidate, const Trace& forced) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  std::map<TensorId, double> theirs;
  std::map<std::int64_t, ElementType> types;
  for (const StepTrace& trace : candidate.steps()) {
    Step step = read(trace, vocabulary);
    types.emplace(trace.step, step.type);
    if (step.has_sketches) {
      of_others_.insert(trace.step);
    }
    theirs.merge(step.norms);
  }
  for (const StepTrace& trace : forced.steps()) {
    const Step step = read(trace, vocabulary);
    const double most = rounding_error(ElementType::kF32) * std::sqrt(step.gradients / 12.0);
    double& granted = by_step_[trace.step];
    granted = step.norms.empty() ? most : 0.0;
    for (const auto& [id, expected] : step.norms) {
      const auto found = theirs.find(id);
      if (found == theirs.end() || expected <= 0.0) {
        continue;
      }
      const double stored = rounding_of_stored_norm(types.at(trace.step), found->second);
      const double apart = std::abs(found->second / expected - 1.0);
      // Where the norm is of a lower type, so is the coefficient that is made of it.
      granted = apart <= most + stored ? std::max(granted, apart + stored / 2.0) : granted;
    }
  }
}

double ClippingNorms::rounding(std::int64_t step) const {
  const auto found = by_step_.find(step);
  return found == by_step_.end() ? 0.0 : found->second;
}

}  // namespace ttrace
