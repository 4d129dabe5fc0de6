#include "analysis/clipping_norms.h"

#include <ttrace/element_type.h>
#include <ttrace/merge.h>
#include <ttrace/tensor_id.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string>

namespace ttrace {
namespace {

struct Scalars {
  std::set<TensorId> norms;
  double gradients = 0.0;  // elements
};

Scalars scalars_of(const StepTrace& step) {
  Scalars result;
  std::set<std::string> counted;
  for (const RankFile& file : step.ranks) {
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kMainGrad && counted.insert(record.id.path).second) {
        result.gradients += static_cast<double>(element_count(record.placement.logical_shape()));
      } else if (record.id.kind == Kind::kScalar &&
                 record.id.path.find("norm") != std::string::npos) {
        result.norms.insert(record.id);
      }
    }
  }
  return result;
}

std::optional<double> value_of(const ShardIndex& trace, const TensorId& id) {
  const std::span<const Shard> shards = trace.of(id);
  double value = 0.0;
  if (shards.empty() || shards.front().record->type != ElementType::kF64 ||
      shards.front().bytes.size() != sizeof value) {
    return std::nullopt;
  }
  std::memcpy(&value, shards.front().bytes.data(), sizeof value);  // all ranks have the same
  return value;
}

}  // namespace

ClippingNorms::ClippingNorms(const Trace& candidate, const Trace& forced) {
  const ShardIndex theirs(candidate);
  const ShardIndex ours(forced);
  for (const StepTrace& step : forced.steps()) {
    const Scalars scalars = scalars_of(step);
    const double most = rounding_error(ElementType::kF32) * std::sqrt(scalars.gradients / 12.0);
    std::optional<double> apart;
    for (const TensorId& id : scalars.norms) {
      const auto expected = value_of(ours, id);
      const auto found = value_of(theirs, id);
      if (expected && found && *expected > 0.0 && std::abs(*found / *expected - 1.0) <= most) {
        apart = std::max(apart.value_or(0.0), std::abs(*found / *expected - 1.0));
      }
    }
    by_step_[step.step] = apart.value_or(scalars.norms.empty() ? most : 0.0);
  }
}

double ClippingNorms::rounding(std::int64_t step) const {
  const auto found = by_step_.find(step);
  return found == by_step_.end() ? 0.0 : found->second;
}

}  // namespace ttrace
