#include "analysis/bounds/gradient_factors.h"

#include "analysis/align/values.h"
#include "trace/sums/squared.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

double product(const std::vector<double>& left, const std::vector<double>& right) {
  return std::inner_product(left.begin(), left.end(), right.begin(), 0.0);
}

// Nothing where elements do not tell.
std::optional<double> factor_of(const Match& main, std::span<const Match* const> gradients) {
  constexpr double kRest = 0.01;
  const auto made = merged_values(main.reference);
  if (!made) {
    return std::nullopt;
  }
  std::vector<double> sum(made->data.size());
  for (const Match* const gradient : gradients) {
    const auto addend = merged_values(gradient->reference);
    if (!addend || addend->shape != made->shape) {
      return std::nullopt;
    }
    std::ranges::transform(addend->data, sum, sum.begin(), std::plus<>());
  }
  const double squares = product(sum, sum);
  const double factor = squares > 0.0 ? product(sum, made->data) / squares : 0.0;
  const double all = product(made->data, made->data);
  return factor > 0.0 && all - squared(factor) * squares <= kRest * all ? std::optional(factor)
                                                                        : std::nullopt;
}

}  // namespace

GradientFactors gradient_factors(std::span<const Match> matches) {
  std::map<std::pair<std::int64_t, std::string>, std::vector<const Match*>> gradients;
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const Match*>> by_size;
  for (const Match& match : matches) {
    if (match.reference.empty()) {
      continue;
    }
    if (match.id.kind == Kind::kParamGrad) {
      gradients[{match.id.step, match.id.path}].push_back(&match);
    } else if (match.id.kind == Kind::kMainGrad) {
      const auto shape = match.reference.front().record->placement.logical_shape();
      by_size[{match.id.step, element_count(shape)}].push_back(&match);
    }
  }
  GradientFactors factors;
  for (const auto& [step_and_size, mains] : by_size) {
    for (const Match* const main : mains) {
      const std::int64_t step = main->id.step;
      const auto found = gradients.find({step, main->id.path});
      if (factors.contains(step) || found == gradients.end()) {
        continue;
      }
      if (const auto factor = factor_of(*main, found->second)) {
        factors[step] = without_rounding(*factor);
      }
    }
  }
  return factors;
}

}  // namespace ttrace
