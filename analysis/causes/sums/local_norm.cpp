#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// What one rank holds of a parameter's main gradient.
struct GradientPart {
  int rank = 0;
  double squared = 0.0;    // its squared norm
  std::size_t region = 0;  // equal for parts that are copies of each other
};

struct Gradient {
  std::vector<GradientPart> parts;
  bool is_of_expert = false;
  bool is_vector = false;
  [[nodiscard]] bool is_replicated() const {  // every rank that has it holds the same of it
    return std::all_of(
        parts.begin(), parts.end(), [](const GradientPart& part) { return part.region == 0; });
  }
};

using MainGradients = std::vector<Gradient>;

enum class CopyCount { kOnce, kEach, kNone };  // how often a norm counts what several ranks hold

bool same_region(const Shard& left, const Shard& right) {
  return left.record->placement.dims == right.record->placement.dims &&
         left.record->placement.flat == right.record->placement.flat &&
         left.record->placement.partial_index == right.record->placement.partial_index;
}

Gradient gradient_of(const Match& match) {
  const std::vector<Shard>& shards = match.candidate;
  Gradient gradient{.parts = {},
                    .is_of_expert = match.id.path.find(".experts.") != std::string::npos,
                    .is_vector = !shards.empty() && shards[0].record->placement.dims.size() == 1};
  for (const Shard& shard : shards) {
    const auto first = std::find_if(shards.begin(), shards.end(), [&](const Shard& earlier) {
      return same_region(earlier, shard);
    });
    gradient.parts.push_back(
        {.rank = shard.rank,
         .squared = std::pow(shard.record->norm * shard.record->placement.scale, 2),
         .region = static_cast<std::size_t>(first - shards.begin())});
  }
  return gradient;
}

MainGradients gradients_of(const Evidence& evidence) {
  MainGradients gradients;
  for (const Match& match : evidence.matches()) {
    if (match.id.step == evidence.finding().id.step && match.id.kind == Kind::kMainGrad) {
      gradients.push_back(gradient_of(match));
    }
  }
  return gradients;
}

template <class OfRank>
double squared_norm(const Gradient& gradient, CopyCount copies, OfRank is_summed) {
  if (copies == CopyCount::kNone && gradient.is_replicated()) {
    return 0.0;
  }
  double sum = 0.0;
  std::set<std::size_t> counted;
  for (const GradientPart& part : gradient.parts) {
    if (is_summed(part.rank) &&
        (counted.insert(part.region).second || copies != CopyCount::kOnce)) {
      sum += part.squared;
    }
  }
  return sum;
}

template <class OfRank>
double squared_norm(const MainGradients& gradients, CopyCount copies, OfRank is_summed) {
  double sum = 0.0;
  for (const Gradient& gradient : gradients) {
    sum += squared_norm(gradient, copies, is_summed);
  }
  return sum;
}

bool any_rank(int /*rank*/) {
  return true;
}

double whole_squared_norm(const MainGradients& gradients, CopyCount copies = CopyCount::kOnce) {
  return squared_norm(gradients, copies, any_rank);
}

// Main gradients are summed in f32 by most trainers, in an order of their own.
constexpr double kRelative = 1e-3;

// Of what is left out: a part of the gradients may be small.
constexpr double kFine = 2e-4;

bool is_norm(double value, double squared) {
  return squared > 0.0 && std::abs(value - std::sqrt(squared)) <= kRelative * std::abs(value);
}

using Axes = std::vector<std::string>;

Axes without(Axes axes, const Axes& removed) {
  std::erase_if(axes, [&](const std::string& axis) {
    return std::find(removed.begin(), removed.end(), axis) != removed.end();
  });
  return axes;
}

// The first axes that tell all ranks apart: those of experts are cut from them.
Axes main_axes(const Evidence& evidence, const Match& scalar) {
  Axes axes;
  int places = 1;
  for (const std::string& axis : evidence.axes()) {
    if (places >= evidence.layout(scalar.candidate.front().rank).world_size) {
      break;
    }
    axes.push_back(axis);
    places *= evidence.axis_size(axis);
  }
  return axes;
}

// Over `rank` and all that stand where it does on `axes`.
double squared_norm_of_group(const Evidence& evidence,
                             const MainGradients& gradients,
                             int rank,
                             const Axes& axes,
                             CopyCount copies) {
  return squared_norm(gradients, copies, [&](int other) {
    return std::all_of(axes.begin(), axes.end(), [&](const std::string& axis) {
      return evidence.layout(other).coordinate(axis) == evidence.layout(rank).coordinate(axis);
    });
  });
}

bool is_norm_of_group(const Evidence& evidence,
                      const MainGradients& gradients,
                      const Shard& scalar,
                      const Axes& axes) {
  const double value = local_values(scalar).data.at(0);
  const std::array ways = {CopyCount::kOnce, CopyCount::kEach, CopyCount::kNone};
  return std::any_of(ways.begin(), ways.end(), [&](CopyCount copies) {
    return is_norm(value, squared_norm_of_group(evidence, gradients, scalar.rank, axes, copies));
  });
}

// Those of `axes` that a sum must run over: without them it lacks a part of the gradients.
Axes axes_of_the_model(const Evidence& evidence,
                       const MainGradients& gradients,
                       const Match& scalar,
                       const Axes& axes) {
  const double whole = std::sqrt(whole_squared_norm(gradients));
  Axes result;
  for (const std::string& axis : axes) {
    const double rest = squared_norm_of_group(
        evidence, gradients, scalar.candidate.front().rank, {axis}, CopyCount::kOnce);
    if (!is_norm(whole, rest)) {
      result.push_back(axis);
    }
  }
  return result;
}

// The axes of the model over which no rank's value was summed, the most that explain all values;
// nothing where none do.
std::optional<Axes> axes_left_out(const Evidence& evidence,
                                  const MainGradients& gradients,
                                  const Match& scalar,
                                  const Axes& axes,
                                  const Axes& of_the_model) {
  std::optional<Axes> most;
  for (std::size_t subset = 1; subset < std::size_t{1} << of_the_model.size(); ++subset) {
    Axes left_out;
    for (std::size_t i = 0; i < of_the_model.size(); ++i) {
      if ((subset >> i & 1) != 0) {
        left_out.push_back(of_the_model[i]);
      }
    }
    // CopyCount on the other axes do not count twice.
    const Axes summed = without(of_the_model, left_out);
    const Axes kept = without(axes, summed);
    const bool explains =
        std::all_of(scalar.candidate.begin(), scalar.candidate.end(), [&](const Shard& shard) {
          return is_norm_of_group(evidence, gradients, shard, kept);
        });
    if (explains && (!most || left_out.size() > most->size())) {
      most = left_out;
    }
  }
  return most;
}

// One value on all ranks that is the norm without some of the parameters, or without any.
std::optional<Diagnosis> parameters_left_out(const Match& match,
                                             const MainGradients& gradients,
                                             const std::string& values) {
  struct Group {
    const char* what;
    double squared = 0.0;
  };
  Group all{"a norm of no gradients at all"};
  Group experts{"a norm that leaves the parameters of experts out"};
  Group parts{"a norm that counts one rank's part of the parameters of experts"};
  Group vectors{"a norm that leaves parameters with one dimension out"};
  for (const Gradient& gradient : gradients) {
    const double squared = squared_norm(gradient, CopyCount::kOnce, any_rank);
    all.squared += squared;
    vectors.squared += gradient.is_vector ? squared : 0.0;
    if (gradient.is_of_expert) {
      experts.squared += squared;
      parts.squared += squared - gradient.parts.front().squared;
    }
  }
  const double norm = std::sqrt(all.squared);
  for (const Group& group : {all, experts, parts, vectors}) {
    const double rest = std::sqrt(std::max(0.0, all.squared - group.squared));
    const bool tells = norm - rest > 3.0 * kFine * norm;
    const bool is =
        std::all_of(match.candidate.begin(), match.candidate.end(), [&](const Shard& shard) {
          return std::abs(local_values(shard).data.at(0) - rest) <= kFine * norm;
        });
    if (tells && is) {
      return Diagnosis{
          Signature::kLocalNorm,
          std::string(group.what) + " (" + values + "); with all it is " + short_number(norm)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Diagnosis> find_local_norm(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(match);
  if (match.id.kind != Kind::kScalar || match.id.path.find("norm") == std::string::npos ||
      !reference || reference->data.size() != 1 || match.candidate.empty()) {
    return std::nullopt;
  }
  const MainGradients gradients = gradients_of(evidence);
  const double whole = whole_squared_norm(gradients);
  if (!is_norm(reference->data[0], whole)) {
    return std::nullopt;  // the scalar is another norm, or the gradients differ as well
  }
  const double with_copies = whole_squared_norm(gradients, CopyCount::kEach);
  std::string values;
  bool wrong = true;
  bool repeated = true;
  for (const Shard& shard : match.candidate) {
    const double value = local_values(shard).data.at(0);
    wrong = wrong && !is_norm(value, whole);
    repeated = repeated && value * value / whole > 1.0 + kRelative &&
               value <= std::sqrt(with_copies) * (1.0 + kRelative);
    values += (values.empty() ? "rank " : ", rank ") + std::to_string(shard.rank) + " has " +
              short_number(value);
  }
  if (auto lacking = parameters_left_out(match, gradients, values)) {
    return lacking;
  }
  const std::string over_all = "; over all ranks it is " + short_number(std::sqrt(whole));
  const Axes axes = main_axes(evidence, match);
  const Axes of_the_model = axes_of_the_model(evidence, gradients, match, axes);
  const auto left_out = axes_left_out(evidence, gradients, match, axes, of_the_model);
  if (wrong && left_out) {
    const bool own = left_out->size() == of_the_model.size();
    return Diagnosis{Signature::kLocalNorm,
                     (own ? "a norm over each rank's own gradients ("
                          : "a norm over a part of the gradients (") +
                         values + "), not summed over " + and_text(*left_out) + over_all};
  }
  if (repeated) {
    return Diagnosis{Signature::kLocalNorm,
                     "a norm that counts tensors which several ranks hold more than once (" +
                         values + ")" + over_all};
  }
  return std::nullopt;
}

}  // namespace ttrace
