#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>

namespace ttrace {
namespace {

// Dimension i of the result is dimension axes[i] of `values`.
Values transposed(const Values& values, const std::vector<std::int64_t>& axes) {
  const std::size_t count = axes.size();
  std::vector<std::size_t> strides(count, 1);
  for (std::size_t i = count; i-- > 1;) {
    strides[i - 1] = strides[i] * static_cast<std::size_t>(values.shape[i]);
  }
  Values result{std::vector<std::int64_t>(count), std::vector<double>(values.data.size())};
  for (std::size_t i = 0; i < count; ++i) {
    result.shape[i] = values.shape[static_cast<std::size_t>(axes[i])];
  }
  for (std::size_t i = 0; i < result.data.size(); ++i) {
    std::size_t rest = i;
    std::size_t from = 0;
    for (std::size_t dim = count; dim-- > 0;) {
      const auto size = static_cast<std::size_t>(result.shape[dim]);
      from += rest % size * strides[static_cast<std::size_t>(axes[dim])];
      rest /= size;
    }
    result.data[i] = values.data[from];
  }
  return result;
}

}  // namespace

Hypotheses find_transposed(const Evidence& evidence) {
  constexpr std::size_t kMostDimensions = 4;
  const Sides* const sides = evidence.sides();
  const auto reference = evidence.reference(&evidence.match());
  auto candidate = evidence.candidate(&evidence.match());
  const bool differs = sides != nullptr || evidence.finding().symptom() == Symptom::kShapesDiffer;
  if (!differs || !reference || !candidate || reference->data.size() != candidate->data.size() ||
      reference->shape.size() < 2 || reference->shape.size() > kMostDimensions) {
    return {};
  }
  // Sides that do not lie side by side are all error.
  const double error = sides != nullptr ? sides->error : reference->norm();
  const double allowed = sides != nullptr ? evidence.tolerance(error) : allowed_rest(error, 0.0);
  const std::string claimed = shape_text(candidate->shape);
  std::vector<std::int64_t> axes(reference->shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  std::size_t orders = 0;
  Hypotheses found;
  do {
    ++orders;
    const Values other = transposed(*reference, axes);
    candidate->shape = other.shape;  // the bytes decide, whatever shape they were given
    const double rest = distance(*candidate, other);
    if ((std::ranges::is_sorted(axes) && sides != nullptr) || rest > allowed) {
      continue;
    }
    found.push_back({.signature = Signature::kWrongView,
                     .sentence = fmt::format("the candidate's {} is the reference's {} with its "
                                             "dimensions in the order {}, read as if they were not "
                                             "(difference {})",
                                             claimed,
                                             shape_text(reference->shape),
                                             index_text(axes),
                                             short_number(rest)),
                     .error = error,
                     .residual = rest});
  } while (std::ranges::next_permutation(axes).found);
  return chosen_of(orders, std::move(found));
}

}  // namespace ttrace
