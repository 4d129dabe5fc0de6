#include "analysis/checks/golden_check.h"

#include "analysis/bounds/limits.h"
#include "trace/file/manifest.h"
#include "trace/sums/statistics.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int64_t kLeastGoldenElements = 64;
// In F32 errors are those of sums alone, which depend on how a layout cuts them: a rank's smaller
// ones are better, by about the square root of the number of ranks.
constexpr double kLeastInF32 = 0.4;  // of what it is otherwise
constexpr double kRoundings = 2.0;   // by which r must be off, where c may be too accurate

// Values of the graph, not what an optimizer makes of them.
bool is_judged_in_fp64(Kind kind) {
  switch (kind) {
    case Kind::kInput:
    case Kind::kOutput:
    case Kind::kGradOutput:
    case Kind::kGradInput:
    case Kind::kParamGrad:
    case Kind::kMainGrad:
    case Kind::kLoss:
      return true;
    default:
      return false;
  }
}

double distance(const MergeResult& from, const MergeResult& golden) {
  return ttrace::compare(golden.type,
                         golden.bytes.data(),
                         from.type,
                         from.bytes.data(),
                         element_count(golden.shape))
      .error_norm();
}

}  // namespace

GoldenCheck::GoldenCheck(const Trace& golden, std::string precision)
    : precision_(std::move(precision)),
      of_sums_(stored_type(precision_) == ElementType::kF32),
      unit_(rounding_error(stored_type(precision_))),
      order_unit_(default_unit(stored_type(precision_))),
      shards_(golden) {
  first_step_ = golden.steps().empty() ? 0 : golden.steps().front().step;
}

std::optional<GoldenComparison> GoldenCheck::compare(const Match& match,
                                                     const MergeResult& reference,
                                                     const MergeResult& candidate) const {
  const std::span<const Shard> shards = shards_.of(match.id);
  if (shards.empty() || !is_judged_in_fp64(match.id.kind) || !is_floating(reference.type) ||
      !is_floating(candidate.type) || element_count(reference.shape) < kLeastGoldenElements) {
    return std::nullopt;
  }
  const MergeResult golden = merge(shards);
  if (!golden.has_tensor() || golden.shape != reference.shape || golden.held != reference.held ||
      golden.held != candidate.held) {
    return std::nullopt;
  }
  const Statistics of_reference = ttrace::compare(golden.type,
                                                  golden.bytes.data(),
                                                  reference.type,
                                                  reference.bytes.data(),
                                                  element_count(golden.shape));
  GoldenComparison result;
  result.reference_error = of_reference.error_norm();
  result.candidate_error = distance(candidate, golden);
  const double norm = of_reference.reference_norm();
  // NaN and Inf are told by others.
  if (!(result.reference_error > 0.0) || of_reference.candidate_nonfinite > 0 ||
      of_reference.reference_nonfinite > 0) {
    return std::nullopt;
  }
  const TensorClass tensor_class = class_of(match.id, golden.shape.size());
  result.scale = std::max(result.reference_error, order_unit_ * norm);
  if (match.id.step != first_step_) {
    return result;
  }
  result.limit = largest_rho(tensor_class);
  if (result.reference_error > kRoundings * unit_ * norm) {
    result.least = least_rho(tensor_class) * (of_sums_ ? kLeastInF32 : 1.0);
  }
  return result;
}

}  // namespace ttrace
