// A gradient norm that does not cover all main gradients: it leaves a class of parameters out, is
// not summed over some axes, or counts copies.
#include "analysis/causes/common/factors.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// What one rank holds of a parameter's main gradient.
struct GradientPart {
  int rank = 0;
  double squared = 0.0;                        // its squared norm
  std::pair<std::size_t, std::size_t> region;  // equal for parts that are copies of each other
  bool is_first = false;                       // of its parameter
  bool is_replicated = true;                   // every rank that has the parameter has all of it
  bool is_of_expert = false;
  bool is_vector = false;
};

enum class CopyCount { kOnce, kEach, kNone };  // how often a norm counts what several ranks hold

bool same_region(const Shard& left, const Shard& right) {
  return left.record->placement.dims == right.record->placement.dims &&
         left.record->placement.flat == right.record->placement.flat &&
         left.record->placement.partial_index == right.record->placement.partial_index;
}

std::vector<GradientPart> parts_of_gradients(const Evidence& evidence) {
  std::vector<GradientPart> parts;
  std::size_t parameters = 0;
  for (const Match& match : evidence.records(Kind::kMainGrad)) {
    const std::vector<Shard>& shards = match.candidate;
    for (const Shard& shard : shards) {
      const auto first = std::ranges::find_if(
          shards, [&](const Shard& earlier) { return same_region(earlier, shard); });
      const Placement& placement = shard.record->placement;
      parts.push_back(
          {.rank = shard.rank,
           .squared = std::pow(shard.record->norm * placement.scale, 2),
           .region = {parameters, static_cast<std::size_t>(first - shards.begin())},
           .is_first = &shard == &shards.front(),
           .is_replicated = std::ranges::all_of(
               shards, [&](const Shard& each) { return same_region(each, shard); }),
           .is_of_expert = evidence.vocabulary().is_below(Role::kExperts, match.id.path),
           .is_vector = placement.dims.size() == 1});
    }
    ++parameters;
  }
  return parts;
}

using Chosen = std::function<bool(const GradientPart&)>;

double squared_norm(const std::vector<GradientPart>& parts,
                    CopyCount copies,
                    const Chosen& is_summed) {
  double sum = 0.0;
  std::set<std::pair<std::size_t, std::size_t>> counted;
  for (const GradientPart& part : parts) {
    if (is_summed(part) && !(copies == CopyCount::kNone && part.is_replicated) &&
        (counted.insert(part.region).second || copies != CopyCount::kOnce)) {
      sum += part.squared;
    }
  }
  return sum;
}

// Main gradients are summed in f32 by most trainers, in an order of their own.
constexpr double kRelative = 1e-3;

bool is_norm(double value, double squared) {
  return squared > 0.0 && std::abs(value - std::sqrt(squared)) <= kRelative * std::abs(value);
}

using Axes = std::vector<std::string>;

Axes without(Axes axes, const Axes& removed) {
  std::erase_if(
      axes, [&](const auto& axis) { return std::ranges::find(removed, axis) != removed.end(); });
  return axes;
}

// The first axes that tell all ranks apart: those of experts are cut from them.
Axes main_axes(const Evidence& evidence) {
  Axes axes;
  int places = 1;
  for (const std::string& axis : evidence.axes()) {
    if (places >= evidence.layout(evidence.match().candidate.front().rank).world_size) {
      break;
    }
    axes.push_back(axis);
    places *= evidence.axis_size(axis);
  }
  return axes;
}

// The finding, where the reference's scalar is the norm of all main gradients.
struct NormScalar {
  const Evidence& evidence;
  std::vector<GradientPart> parts;
  std::vector<std::pair<int, double>> values = {};  // of the candidate, by rank
  double whole = 0.0;                               // squared

  [[nodiscard]] bool all_values(const std::function<bool(int rank, double value)>& are) const {
    return std::ranges::all_of(values,
                               [&](const auto& each) { return are(each.first, each.second); });
  }

  // Over `rank` and all that stand where it does on `axes`.
  [[nodiscard]] double squared_of_group(int rank, const Axes& axes, CopyCount copies) const {
    return squared_norm(parts, copies, [&](const GradientPart& part) {
      return std::ranges::all_of(axes, [&](const std::string& axis) {
        return evidence.layout(part.rank).coordinate(axis) ==
               evidence.layout(rank).coordinate(axis);
      });
    });
  }
  // The norm over that group that is nearest to the rank's value, however copies are counted.
  [[nodiscard]] double nearest_of_group(int rank, double value, const Axes& axes) const {
    std::array<double, 3> norms{};
    std::ranges::transform(
        std::array{CopyCount::kOnce, CopyCount::kEach, CopyCount::kNone},
        norms.begin(),
        [&](CopyCount copies) { return std::sqrt(squared_of_group(rank, axes, copies)); });
    return std::ranges::min(norms, {}, [&](double norm) { return std::abs(value - norm); });
  }

  // `expected`: what a rank's value is if the claim is right.
  [[nodiscard]] Hypothesis hypothesis(
      const std::string& what,
      std::size_t choices,
      const std::function<double(int rank, double value)>& expected) const {
    std::string text;
    double error = 0.0;
    double left = 0.0;
    for (const auto& [rank, value] : values) {
      text += fmt::format("{}rank {} has {}", text.empty() ? "" : ", ", rank, short_number(value));
      error = std::max(error, std::abs(value - std::sqrt(whole)));
      left = std::max(left, std::abs(value - expected(rank, value)));
    }
    return {
        .signature = Signature::kLocalNorm,
        .sentence = fmt::format("the norm is wrong because {} ({}); over all gradients it is {}",
                                what,
                                text,
                                short_number(std::sqrt(whole))),
        .error = error,
        .residual = left,
        .bits = bits_of_choice(static_cast<double>(choices))};
  }
};

std::optional<NormScalar> norm_of(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto reference = evidence.reference(&match);
  if (!evidence.vocabulary().is_scalar(Role::kGradientNorm, match.id) || !reference ||
      reference->data.size() != 1 || match.candidate.empty()) {
    return std::nullopt;
  }
  NormScalar norm{evidence, parts_of_gradients(evidence)};
  norm.whole = norm.squared_of_group(0, {}, CopyCount::kOnce);
  for (const Shard& shard : match.candidate) {
    norm.values.emplace_back(shard.rank, local_values(shard).data.at(0));
  }
  // Else the scalar is another norm, or the gradients differ as well.
  return is_norm(reference->data[0], norm.whole) ? std::optional(std::move(norm)) : std::nullopt;
}

Hypotheses without_a_class(const NormScalar& norm) {
  // A part of the gradients may be small.
  constexpr double kFine = 2e-4;
  const std::array<std::pair<const char*, Chosen>, 4> kLeftOut = {
      {{"it counts no gradients at all", [](const GradientPart&) { return true; }},
       {"it leaves the parameters of experts out",
        [](const GradientPart& part) { return part.is_of_expert; }},
       {"it counts only one rank's part of the parameters of experts",
        [](const GradientPart& part) { return part.is_of_expert && !part.is_first; }},
       {"it leaves parameters with one dimension out",
        [](const GradientPart& part) { return part.is_vector; }}}};
  const double whole = std::sqrt(norm.whole);
  Hypotheses found;
  for (const auto& [what, is_left_out] : kLeftOut) {
    const double rest =
        std::sqrt(squared_norm(norm.parts, CopyCount::kOnce, std::not_fn(is_left_out)));
    if (whole - rest > 3.0 * kFine * whole && norm.all_values([&](int, double value) {
          return std::abs(value - rest) <= kFine * whole;
        })) {
      found.push_back(norm.hypothesis(what, kLeftOut.size(), [&](int, double) { return rest; }));
    }
  }
  return found;
}

// Not summed over axes of the model, the most that explain all values: those that a sum must run
// over, because a part of the gradients is missing without them.
std::optional<Hypothesis> of_part(const NormScalar& norm, const Axes& axes) {
  Axes of_the_model = axes;
  std::erase_if(of_the_model, [&](const std::string& axis) {
    return is_norm(std::sqrt(norm.whole),
                   norm.squared_of_group(norm.values.front().first, {axis}, CopyCount::kOnce));
  });
  // Copies on the other axes do not count twice.
  const auto kept_without = [&](const Axes& subset) {
    return without(axes, without(of_the_model, subset));
  };
  auto subsets = subsets_of(of_the_model);
  std::ranges::stable_sort(subsets, std::greater<>(), &Axes::size);
  const auto left_out = std::ranges::find_if(subsets, [&](const Axes& subset) {
    return norm.all_values([&](int rank, double value) {
      const double expected = norm.nearest_of_group(rank, value, kept_without(subset));
      return is_norm(value, expected * expected);
    });
  });
  if (left_out == subsets.end()) {
    return std::nullopt;
  }
  const bool own = left_out->size() == of_the_model.size();
  Hypothesis found =
      norm.hypothesis(fmt::format("it covers only {} and is not summed over {}",
                                  own ? "each rank's own gradients" : "a part of the gradients",
                                  and_text(*left_out)),
                      subsets_of(axes).size(),
                      [&](int rank, double value) {
                        return norm.nearest_of_group(rank, value, kept_without(*left_out));
                      });
  found.named.axes = *left_out;
  return found;
}

}  // namespace

Hypotheses find_local_norm(const Evidence& evidence) {
  const auto norm = norm_of(evidence);
  if (!norm) {
    return {};
  }
  Hypotheses found = without_a_class(*norm);
  const Axes axes = main_axes(evidence);
  const bool all_wrong =
      norm->all_values([&](int, double value) { return !is_norm(value, norm->whole); });
  append(found, all_wrong ? of_part(*norm, axes) : std::nullopt);
  const double with_copies = norm->squared_of_group(0, {}, CopyCount::kEach);
  if (norm->all_values([&](int, double value) {
        return value * value > norm->whole * (1.0 + kRelative) &&
               value <= std::sqrt(with_copies) * (1.0 + kRelative);
      })) {
    // Between the norm and the one with all copies lies much: the value itself is a free number.
    found.push_back(norm->hypothesis("it counts a tensor once for every rank that holds a copy",
                                     subsets_of(axes).size(),
                                     [](int, double value) { return value; }));
    found.back().coefficients = static_cast<double>(norm->values.size());
  }
  return found;
}

}  // namespace ttrace
