#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

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

Gradient gradient_of(const Match& match, const ModelVocabulary& vocabulary) {
  const std::vector<Shard>& shards = match.candidate;
  Gradient gradient{.parts = {},
                    .is_of_expert = vocabulary.is_below(Role::kExperts, match.id.path),
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
      gradients.push_back(gradient_of(match, evidence.vocabulary()));
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
  for (const Axes& left_out : subsets_of(of_the_model)) {
    // Copies on the other axes do not count twice.
    const Axes kept = without(axes, without(of_the_model, left_out));
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

// Gradients that a norm may leave out, by what they have in common.
struct Group {
  const char* what;
  double (*squared)(const Gradient& gradient);  // of what is left out
};

constexpr std::array kGroups = {
    Group{"it counts no gradients at all",
          [](const Gradient& gradient) {
            return squared_norm(gradient, CopyCount::kOnce, any_rank);
          }},
    Group{"it leaves the parameters of experts out",
          [](const Gradient& gradient) {
            return gradient.is_of_expert ? squared_norm(gradient, CopyCount::kOnce, any_rank) : 0.0;
          }},
    Group{"it counts only one rank's part of the parameters of experts",
          [](const Gradient& gradient) {
            return gradient.is_of_expert ? squared_norm(gradient, CopyCount::kOnce, any_rank) -
                                               gradient.parts.front().squared
                                         : 0.0;
          }},
    Group{"it leaves parameters with one dimension out", [](const Gradient& gradient) {
            return gradient.is_vector ? squared_norm(gradient, CopyCount::kOnce, any_rank) : 0.0;
          }}};

// The scalar of the finding, where the reference's is the norm of all main gradients.
struct NormScalar {
  const Match& match;
  MainGradients gradients;
  double whole = 0.0;  // squared
  std::string values;  // "rank 0 has 1.2, rank 1 has 3"
};

std::optional<NormScalar> norm_of(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(match);
  if (match.id.kind != Kind::kScalar ||
      !evidence.vocabulary().is(Role::kGradientNorm, match.id.path) || !reference ||
      reference->data.size() != 1 || match.candidate.empty()) {
    return std::nullopt;
  }
  NormScalar norm{match, gradients_of(evidence), 0.0, ""};
  norm.whole = whole_squared_norm(norm.gradients);
  if (!is_norm(reference->data[0], norm.whole)) {
    return std::nullopt;  // the scalar is another norm, or the gradients differ as well
  }
  for (const Shard& shard : match.candidate) {
    norm.values += fmt::format("{}rank {} has {}",
                               norm.values.empty() ? "" : ", ",
                               shard.rank,
                               short_number(local_values(shard).data.at(0)));
  }
  return norm;
}

Hypothesis local_norm(const NormScalar& norm, const std::string& what, double bits) {
  return {.signature = Signature::kLocalNorm,
          .sentence = fmt::format("the norm is wrong because {} ({}); over all gradients it is {}",
                                  what,
                                  norm.values,
                                  short_number(std::sqrt(norm.whole))),
          .bits = bits};
}

}  // namespace

std::optional<Hypothesis> find_norm_without(const Evidence& evidence) {
  const auto norm = norm_of(evidence);
  if (!norm) {
    return std::nullopt;
  }
  const double whole = std::sqrt(norm->whole);
  for (const Group& group : kGroups) {
    double left_out = 0.0;
    for (const Gradient& gradient : norm->gradients) {
      left_out += group.squared(gradient);
    }
    const double rest = std::sqrt(std::max(0.0, norm->whole - left_out));
    const std::vector<Shard>& scalars = norm->match.candidate;
    const bool is = std::all_of(scalars.begin(), scalars.end(), [&](const Shard& shard) {
      return std::abs(local_values(shard).data.at(0) - rest) <= kFine * whole;
    });
    if (is && whole - rest > 3.0 * kFine * whole) {
      return local_norm(*norm, group.what, bits_of_choice(static_cast<double>(kGroups.size())));
    }
  }
  return std::nullopt;
}

std::optional<Hypothesis> find_norm_of_part(const Evidence& evidence) {
  const auto norm = norm_of(evidence);
  if (!norm) {
    return std::nullopt;
  }
  const double with_copies = whole_squared_norm(norm->gradients, CopyCount::kEach);
  bool wrong = true;
  bool repeated = true;
  for (const Shard& shard : norm->match.candidate) {
    const double value = local_values(shard).data.at(0);
    wrong = wrong && !is_norm(value, norm->whole);
    repeated = repeated && value * value / norm->whole > 1.0 + kRelative &&
               value <= std::sqrt(with_copies) * (1.0 + kRelative);
  }
  const Axes axes = main_axes(evidence, norm->match);
  const Axes of_the_model = axes_of_the_model(evidence, norm->gradients, norm->match, axes);
  const auto left_out = axes_left_out(evidence, norm->gradients, norm->match, axes, of_the_model);
  const double bits = bits_of_choice(static_cast<double>(subsets_of(axes).size()));
  if (wrong && left_out) {
    const bool own = left_out->size() == of_the_model.size();
    Hypothesis found =
        local_norm(*norm,
                   fmt::format("it covers only {} and is not summed over {}",
                               own ? "each rank's own gradients" : "a part of the gradients",
                               and_text(*left_out)),
                   bits);
    found.named.axes = *left_out;
    return found;
  }
  return repeated ? std::optional(local_norm(
                        *norm, "it counts tensors which several ranks hold more than once", bits))
                  : std::nullopt;
}

}  // namespace ttrace
