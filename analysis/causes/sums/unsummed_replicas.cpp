// Copies that differ: what every rank holds may be its own addend of a sum, or mean, that nobody
// took.
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// Bit-equal copies, in the order of their first ranks. Axes do not tell which ranks hold what:
// those of experts are another view of the same ranks, so that copies may differ along two axes at
// once.
using Copies = std::vector<const Shard*>;

std::vector<Copies> distinct_copies(const Match& match) {
  std::vector<Copies> groups;
  for (const Shard& shard : match.candidate) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Copies& group) {
      return group.front()->record->digest == shard.record->digest;
    });
    if (same == groups.end()) {
      groups.push_back({&shard});
    } else {
      same->push_back(&shard);
    }
  }
  return groups;
}

// Axes on which every group has a place of its own.
std::vector<std::string> axes_apart(const Evidence& evidence, const std::vector<Copies>& groups) {
  std::vector<std::string> names;
  for (const std::string& axis : evidence.axes()) {
    std::set<int> places;
    bool apart = true;
    for (const Copies& group : groups) {
      std::set<int> own;
      for (const Shard* shard : group) {
        own.insert(evidence.layout(shard->rank).coordinate(axis));
      }
      apart = apart && own.size() == 1 && places.insert(*own.begin()).second;
    }
    if (apart) {
      names.push_back(axis);
    }
  }
  return names;
}

// What every copy carries whole, in addition to its addend.
struct Common {
  std::string name;  // "the bias"; empty for nothing
  Values values;     // repeated over the rows
};

// g W of a module that reads the tensor with the same weight on every rank: its gradient is in
// every copy already.
std::optional<Values> gradient_through(const Evidence& evidence, const Match& output) {
  const Match* const weight = evidence.find(weight_id(output.id.step, output.id.path));
  const auto gradient = candidate_of(evidence, Kind::kGradOutput, output.id.path);
  if (weight == nullptr || !gradient || gradient->shape.empty() ||
      !std::all_of(weight->candidate.begin(), weight->candidate.end(), [](const Shard& shard) {
        return shard.record->placement.is_whole();
      })) {
    return std::nullopt;
  }
  const auto w = evidence.candidate(weight);
  const auto out = static_cast<std::size_t>(gradient->shape.back());
  if (!w || w->shape.size() != 2 || w->shape[0] != gradient->shape.back() || out == 0) {
    return std::nullopt;
  }
  const auto in = static_cast<std::size_t>(w->shape[1]);
  const std::size_t rows = gradient->data.size() / out;
  Values result{gradient->shape, std::vector<double>(rows * in)};
  result.shape.back() = w->shape[1];
  for (std::size_t i = 0; i < rows * out; ++i) {
    for (std::size_t j = 0; j < in; ++j) {
      result.data[i / out * in + j] += gradient->data[i] * w->data[i % out * in + j];
    }
  }
  return result;
}

// The bias of a module's output; the gradients through small modules that read an output.
std::vector<Common> commons_of(const Evidence& evidence, const Values& expected) {
  constexpr std::int64_t kSmall = 1024;  // outputs of a module that all ranks compute whole
  if (auto bias = bias_of(evidence, expected, WhichRun::kReference)) {
    return {{"the bias", *std::move(bias)}};
  }
  std::vector<Common> list = {{}};
  const TensorId& id = evidence.finding().id;
  if (id.kind != Kind::kGradOutput) {
    return list;
  }
  for (const Match* match : outputs_after(evidence, id)) {
    const auto own = evidence.candidate(match);
    auto through = own && !own->shape.empty() && own->shape.back() <= kSmall
                       ? gradient_through(evidence, *match)
                       : std::nullopt;
    if (through && through->shape == expected.shape) {
      list.push_back({"the gradient through " + match->id.path, *std::move(through)});
    }
  }
  return list;
}

// ||sum of the copies, each times its weight - reference||, what each copy carries whole counted
// once.
double distance_of_sum(const std::vector<Copies>& groups,
                       const std::vector<double>& weights,
                       const Values& reference,
                       const Common& common) {
  Values sum{reference.shape, std::vector<double>(reference.data.size())};
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const Values copy = local_values(*groups[group].front());
    if (copy.shape != reference.shape) {
      return distance(copy, reference);
    }
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] += weights[group] * copy.data[i];
    }
  }
  if (!common.values.data.empty()) {
    const auto repeated = static_cast<double>(groups.size() - 1);
    for (std::size_t i = 0; i < sum.data.size(); ++i) {
      sum.data[i] -= repeated * common.values.data[i % common.values.data.size()];
    }
  }
  return distance(sum, reference);
}

// Of a mean over all ranks.
std::vector<double> shares_of(const std::vector<Copies>& groups) {
  std::size_t ranks = 0;
  for (const Copies& group : groups) {
    ranks += group.size();
  }
  std::vector<double> shares;
  for (const Copies& group : groups) {
    shares.push_back(static_cast<double>(group.size()) / static_cast<double>(ranks));
  }
  return shares;
}

// What copies that disagree should be: the reference's value, or, of a forward that ran again, that
// of the first forward.
std::optional<Values> expected_of(const Evidence& evidence) {
  if (!evidence.copies_differ()) {
    return std::nullopt;
  }
  if (evidence.sides() != nullptr) {
    return evidence.sides()->reference;
  }
  TensorId first = evidence.finding().id;
  first.recompute = false;
  return evidence.finding().id.recompute ? evidence.value(first, WhichRun::kCandidate)
                                         : std::nullopt;
}

}  // namespace

Hypotheses find_unsummed_copies(const Evidence& evidence) {
  const Match& match = evidence.match();
  const auto expected = expected_of(evidence);
  const std::vector<Copies> groups = distinct_copies(match);
  if (groups.size() < 2 || !expected || !std::ranges::all_of(match.candidate, holds_all) ||
      !std::ranges::all_of(match.candidate, has_elements)) {
    return {};
  }
  // A copy that is right already is no addend, however small the others are.
  double nearest = std::numeric_limits<double>::infinity();
  double error = 0.0;
  std::vector<int> ranks;
  for (const Copies& group : groups) {
    const double apart = distance(local_values(*group.front()), *expected);
    nearest = std::min(nearest, apart);
    error = std::max(error, apart);
    ranks.push_back(group.front()->rank);
  }
  const std::vector<std::string> axes = axes_apart(evidence, groups);
  const auto explains = [&](double rest) {
    return rest <= evidence.tolerance(error) && rest <= 0.5 * nearest;
  };
  const auto missing = [&](const char* reduction, const std::string& common, double rest) {
    return Hypothesis{
        .signature = Signature::kMissingReduction,
        .sentence = fmt::format(
            "the {0} over {1} is missing; every rank holds only its own addend. The {0} of what "
            "{2} hold is {3}{4} up to {5}; each of them alone is off by up to {6}",
            reduction,
            axes.empty() ? "ranks" : and_text(axes),
            ranks_text(ranks),
            evidence.sides() == nullptr ? "the first forward's value" : "the reference",
            common.empty() ? "" : " (with " + common + " counted once)",
            short_number(rest),
            short_number(error)),
        .named = {.axes = axes, .ranks = evidence.finding().holders},
        .error = error,
        .residual = rest};
  };
  const std::vector<Common> commons = commons_of(evidence, *expected);
  const std::vector<double> ones(groups.size(), 1.0);
  Hypotheses found;
  for (const Common& common : commons) {
    const double rest = distance_of_sum(groups, ones, *expected, common);
    if (explains(rest)) {
      found.push_back(missing("sum", common.name, rest));
    }
  }
  const double rest = distance_of_sum(groups, shares_of(groups), *expected, {});
  if (explains(rest)) {
    found.push_back(missing("mean", "", rest));
  }
  return chosen_of(commons.size() + 1, std::move(found));
}

Hypotheses find_diverged_copies(const Evidence& evidence) {
  if (!evidence.copies_differ() || evidence.match().reference.empty()) {
    return {};  // of what the reference does not have, nothing says that the copies should be equal
  }
  // Nothing is explained, and every further value must be described on its own.
  const auto further = static_cast<double>(distinct_copies(evidence.match()).size() - 1);
  const Sides* sides = evidence.sides();
  const std::vector<int>& ranks = evidence.finding().holders;
  return {
      {.signature = Signature::kReplicasDiverge,
       .sentence = fmt::format(
           "{} should hold equal copies, but their copies differ; no factor, sum "
           "or order relates them{}",
           ranks_text(ranks),
           sides == nullptr ? ". All of them are within the bound of the reference" : ""),
       .named = {.ranks = ranks},
       .error = 1.0,
       .residual = 1.0,
       .coefficients = further * (sides == nullptr ? 1.0 : static_cast<double>(sides->size()))}};
}

}  // namespace ttrace
