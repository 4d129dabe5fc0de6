#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace ttrace {
namespace {

using Axes = std::vector<std::size_t>;

// Dimension i of the result is dimension axes[i] of `values`.
Values transposed(const Values& values, const Axes& axes) {
  const std::size_t count = axes.size();
  std::vector<std::size_t> strides(count, 1);
  for (std::size_t i = count; i-- > 1;) {
    strides[i - 1] = strides[i] * static_cast<std::size_t>(values.shape[i]);
  }
  Values result{std::vector<std::int64_t>(count), std::vector<double>(values.data.size())};
  for (std::size_t i = 0; i < count; ++i) {
    result.shape[i] = values.shape[axes[i]];
  }
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    std::size_t rest = i;
    std::size_t from = 0;
    for (std::size_t dim = count; dim-- > 0;) {
      const auto size = static_cast<std::size_t>(result.shape[dim]);
      from += rest % size * strides[axes[dim]];
      rest /= size;
    }
    result.data[i] = values.data[from];
  }
  return result;
}

// "[1, 0, 2]"
std::string axes_text(const Axes& axes) {
  const std::vector<std::int64_t> numbers(axes.begin(), axes.end());
  return index_text(numbers);
}

// What an explanation may leave, of sides that may not lie side by side.
double tolerance(const Evidence& evidence, const Values& reference) {
  constexpr double kLittle = 0.05;
  return evidence.sides() != nullptr ? evidence.tolerance(evidence.sides()->error)
                                     : kLittle * reference.norm();
}

}  // namespace

std::optional<Hypothesis> find_transposed(const Evidence& evidence) {
  constexpr std::size_t kMostDimensions = 4;
  const auto reference = evidence.reference(evidence.match());
  auto candidate = evidence.candidate(evidence.match());
  const bool differs =
      evidence.sides() != nullptr || evidence.finding().symptom() == Symptom::kShapesDiffer;
  if (!differs || !reference || !candidate || reference->data.size() != candidate->data.size() ||
      reference->shape.size() < 2 || reference->shape.size() > kMostDimensions) {
    return std::nullopt;
  }
  const std::string claimed = shape_text(candidate->shape);
  Axes axes(reference->shape.size());
  std::iota(axes.begin(), axes.end(), 0U);
  double orders = 0.0;
  std::vector<Hypothesis> found;
  do {
    ++orders;
    const Values other = transposed(*reference, axes);
    candidate->shape = other.shape;  // the bytes decide, whatever shape they were given
    const double rest = distance(*candidate, other);
    const bool same = std::is_sorted(axes.begin(), axes.end()) && evidence.sides() != nullptr;
    if (!same && rest <= tolerance(evidence, *reference)) {
      found.push_back(
          {.signature = Signature::kWrongView,
           .sentence =
               fmt::format("the candidate's {} is the reference's {} with its dimensions in the "
                           "order {}, read as if they were not (difference {})",
                           claimed,
                           shape_text(reference->shape),
                           axes_text(axes),
                           short_number(rest)),
           .error = evidence.sides() != nullptr ? evidence.sides()->error : reference->norm(),
           .residual = rest});
    }
  } while (std::next_permutation(axes.begin(), axes.end()));
  for (Hypothesis& each : found) {
    each.bits = bits_of_choice(orders);
  }
  return shortest(evidence, std::move(found));
}

}  // namespace ttrace
