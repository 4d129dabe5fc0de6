#include "analysis/checks/other_data.h"

#include "trace/merge/draws.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace ttrace {
namespace {

bool is_other_data(double error, double norm) {
  constexpr double kMuch = 0.25;
  return error > kMuch * norm;
}

bool reads_other_data(const TensorVerdict& tensor) {
  return tensor.is_given && tensor.comparison &&
         is_other_data(tensor.comparison->error, tensor.comparison->reference_norm);
}

// The first tensor that shows that the reference does not repeat its data.
std::optional<TensorId> data_drawn_anew(const NoiseModel& noise,
                                        std::span<const TensorVerdict> tensors) {
  for (const TensorVerdict& tensor : tensors) {
    if (!reads_other_data(tensor)) {
      continue;
    }
    const NoiseRow* const second = noise.irreproducible().find(tensor.id);
    const TensorNoise* const passes = noise.find(tensor.id);
    const double own = second != nullptr   ? std::sqrt(second->sum_squared)
                       : passes != nullptr ? std::sqrt(passes->mean_squared)
                                           : 0.0;
    if (is_other_data(own, tensor.comparison->reference_norm)) {
      return tensor.id;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string why_other_data(const Trace& reference,
                           const Trace& candidate,
                           const NoiseModel& noise,
                           std::span<const TensorVerdict> tensors,
                           bool knows_no_sample) {
  if (const auto drawn = data_drawn_anew(noise, tensors)) {
    return fmt::format(
        "the runs do not read the same data, and the reference does not repeat its own ({}); seed "
        "what the programs draw, or let them read it from a file",
        to_string(*drawn));
  }
  const bool differ = knows_no_sample || std::ranges::any_of(tensors, reads_other_data);
  const auto drawn =
      differ ? data_of_its_own(Draws(reference), Draws(candidate)) : std::optional<TensorId>();
  return drawn
             ? fmt::format(
                   "the programs draw random numbers for their samples ({}), which the reference "
                   "could not follow: nobody can tell which numbers belong to which sample; let "
                   "every rank draw the whole batch with one seed and keep what its samples need, "
                   "or read the numbers from a file",
                   to_string(*drawn))
             : std::string();
}

}  // namespace ttrace
