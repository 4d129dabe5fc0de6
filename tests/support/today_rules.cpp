#include "support/today_rules.h"

#include "analysis/align/matching.h"
#include "analysis/bounds/bounds.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

namespace ttrace::testing {
namespace {

constexpr double kCosine = 0.999;
constexpr double kFrobenius = 1e-2;
constexpr double kSglang = 1e-3;
constexpr double kDepthFactor = 4.0;
constexpr double kDepthGrowth = 1.03;
constexpr double kNormFloor = 1e-10;

struct Closeness {
  double rtol = 0.0;
  double atol = 0.0;
};

// torch.testing._comparison's table.
Closeness closeness_of(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return {1e-7, 1e-7};
    case ElementType::kF32:
      return {1.3e-6, 1e-5};
    case ElementType::kF16:
      return {1e-3, 1e-5};
    case ElementType::kBF16:
      return {1.6e-2, 1e-5};
    default:
      return {0.0, 0.0};
  }
}

struct Sums {
  double reference = 0.0;   // sum r^2
  double candidate = 0.0;   // sum c^2
  double product = 0.0;     // sum r c
  double difference = 0.0;  // sum (c - r)^2
  bool close = true;        // every |c - r| <= atol + rtol |r|
};

// NaN on either side makes every sum NaN, which no threshold passes.
Sums sums_of(const RulePair& pair) {
  constexpr std::int64_t kBlock = 4096;
  const Closeness limit = closeness_of(pair.type);
  std::vector<double> r(kBlock);
  std::vector<double> c(kBlock);
  const auto at = [](const void* data, ElementType type, std::int64_t index) {
    return static_cast<const std::byte*>(data) +
           static_cast<std::size_t>(index) * element_size(type);
  };
  Sums sums;
  for (std::int64_t start = 0; start < pair.count; start += kBlock) {
    const std::int64_t count = std::min(kBlock, pair.count - start);
    to_double(pair.reference_type, at(pair.reference, pair.reference_type, start), count, r.data());
    to_double(pair.candidate_type, at(pair.candidate, pair.candidate_type, start), count, c.data());
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const double d = c[i] - r[i];
      sums.reference += r[i] * r[i];
      sums.candidate += c[i] * c[i];
      sums.product += r[i] * c[i];
      sums.difference += d * d;
      // Equal values cover equal infinities, as torch.isclose does.
      sums.close =
          sums.close && (c[i] == r[i] || std::abs(d) <= limit.atol + limit.rtol * std::abs(r[i]));
    }
  }
  return sums;
}

// Number of the layer that `path` lies in, from 0; negative outside of the layers.
std::int64_t layer_of(std::string_view path) {
  constexpr std::string_view kLayers = "decoder.layers.";
  if (!path.starts_with(kLayers)) {
    return -1;
  }
  std::int64_t layer = -1;
  std::from_chars(path.data() + kLayers.size(), path.data() + path.size(), layer);
  return layer;
}

std::int64_t layers_of(const Manifest& manifest) {
  const auto found = manifest.model.find("layers");
  TTRACE_CHECK(found != manifest.model.end(),
               UsageError,
               "the manifest's model does not state the number of `layers`");
  return std::stoll(found->second);
}

// False if the two sides have different shapes.
bool fails(const Match& match, double bound, std::array<bool, kRules>& result) {
  const MergeResult r = merge(match.reference);
  const MergeResult c = merge(match.candidate);
  if (!r.has_tensor() || !c.has_tensor()) {
    return false;
  }
  if (r.shape != c.shape) {
    result.fill(true);
    return true;
  }
  result = failing_rules(
      {.type = coarser(match.reference.front().record->type, match.candidate.front().record->type),
       .reference_type = r.type,
       .reference = r.bytes.data(),
       .candidate_type = c.type,
       .candidate = c.bytes.data(),
       .count = element_count(r.shape),
       .depth_bound = bound});
  return true;
}

}  // namespace

std::array<bool, kRules> failing_rules(const RulePair& pair) {
  const Sums sums = sums_of(pair);
  if (sums.reference == 0.0 && sums.candidate == 0.0) {
    return {};
  }
  const double norm = std::sqrt(sums.reference);
  const double error = std::sqrt(sums.difference);
  const double cosine = sums.product / std::sqrt(sums.reference * sums.candidate);
  const double rel_diff = 1.0 - 2.0 * sums.product / (sums.reference + sums.candidate);
  const double depth_error = norm < kNormFloor ? error : error / norm;
  // Negated, so that NaN fails.
  return {!sums.close,
          !(cosine >= kCosine),
          !(error / norm <= kFrobenius),
          !(rel_diff <= kSglang),
          !(depth_error <= pair.depth_bound)};
}

double depth_bound(std::string_view path, std::int64_t layers, std::string_view precision) {
  const double eps = precision == "f64"   ? std::exp2(-52)
                     : precision == "f32" ? std::exp2(-23)
                     : precision == "f16" ? std::exp2(-10)
                                          : std::exp2(-7);
  const bool before = path.starts_with("embedding.");
  const std::int64_t inside = layer_of(path);
  const std::int64_t layer = inside >= 0 ? inside + 1 : before ? 1 : layers;
  return kDepthFactor * std::pow(kDepthGrowth, static_cast<double>(layers + 1 - layer)) * eps;
}

RuleHits apply_rules(const Trace& reference, const Trace& candidate) {
  const std::int64_t layers = layers_of(reference.manifest());
  RuleHits hits;
  for (const Match& pair : match(reference, candidate)) {
    std::array<bool, kRules> failed{};
    if (pair.reference.empty() || pair.candidate.empty() ||
        !fails(pair, depth_bound(pair.id.path, layers, reference.manifest().precision), failed)) {
      continue;
    }
    for (std::size_t rule = 0; rule < kRules; ++rule) {
      if (failed[rule] && hits[rule].empty()) {
        hits[rule] = to_string(pair.id);
      }
    }
  }
  return hits;
}

}  // namespace ttrace::testing
