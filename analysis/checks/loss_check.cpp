#include "analysis/checks/loss_check.h"

#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Programs add thousands of numbers up in f32, in an order of their own.
constexpr double kOfMean = 1e-4;

struct TokenValues {
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

std::optional<TokenValues> merged(std::span<const Shard> shards) {
  if (shards.empty()) {
    return std::nullopt;
  }
  const MergeResult result = merge(shards);
  if (!result.has_tensor() || !result.findings.empty()) {
    return std::nullopt;
  }
  TokenValues values{result.shape,
                     std::vector<double>(static_cast<std::size_t>(element_count(result.shape)))};
  to_double(result.type, result.bytes.data(), std::ssize(values.data), values.data.data());
  return values;
}

// Losses are [s, b], masks of tokens [b, s].
bool turn_round(TokenValues& mask, const TokenValues& losses) {
  if (mask.shape == losses.shape) {
    return true;
  }
  if (mask.shape.size() != 2 || losses.shape.size() != 2 || mask.shape[0] != losses.shape[1] ||
      mask.shape[1] != losses.shape[0]) {
    return false;
  }
  TokenValues turned{losses.shape, std::vector<double>(mask.data.size())};
  const auto rows = static_cast<std::size_t>(mask.shape[0]);
  const auto columns = static_cast<std::size_t>(mask.shape[1]);
  for (std::size_t i = 0; i < mask.data.size(); ++i) {
    turned.data[i % columns * rows + i / columns] = mask.data[i];
  }
  mask = std::move(turned);
  return true;
}

// The losses and masks of the micro-batches of a step.
struct Means {
  double sum = 0.0;
  double tokens = 0.0;
  double sum_of_means = 0.0;
  double microbatches = 0.0;
  bool whole = true;

  void add(const std::optional<TokenValues>& losses, std::optional<TokenValues> mask, bool masked) {
    if (!losses || (masked && (!mask || !turn_round(*mask, *losses)))) {
      whole = false;
      return;
    }
    double here = 0.0;
    double counted_tokens = 0.0;
    for (std::size_t i = 0; i < losses->data.size(); ++i) {
      const double weight = masked ? mask->data[i] : 1.0;
      here += weight == 0.0 ? 0.0 : weight * losses->data[i];
      counted_tokens += weight;
    }
    sum += here;
    tokens += counted_tokens;
    sum_of_means += counted_tokens == 0.0 ? 0.0 : here / counted_tokens;
    microbatches += 1.0;
  }
  [[nodiscard]] double over_tokens() const { return sum / tokens; }
  [[nodiscard]] double over_microbatches() const { return sum_of_means / microbatches; }
};

struct StepLosses {
  Means reference;
  Means candidate;
};

bool is_mask(const TensorId& id, const ModelVocabulary& vocabulary) {
  return id.kind == Kind::kData && vocabulary.is(Role::kLossMask, id.path);
}

std::map<std::int64_t, StepLosses> losses_by_step(std::span<const Match> matches,
                                                  const ModelVocabulary& vocabulary) {
  std::map<std::pair<std::int64_t, std::int64_t>, const Match*> masks;
  for (const Match& match : matches) {
    if (is_mask(match.id, vocabulary)) {
      masks[{match.id.step, match.id.microbatch}] = &match;
    }
  }
  std::map<std::int64_t, StepLosses> steps;
  for (const Match& match : matches) {
    if (match.id.kind != Kind::kLoss) {
      continue;
    }
    const auto found = masks.find({match.id.step, match.id.microbatch});
    const Match* mask = found == masks.end() ? nullptr : found->second;
    StepLosses& step = steps[match.id.step];
    const auto add = [&](Means& means, const std::vector<Shard> Match::*side) {
      means.add(merged(match.*side),
                mask == nullptr ? std::nullopt : merged(mask->*side),
                mask != nullptr);
    };
    add(step.reference, &Match::reference);
    add(step.candidate, &Match::candidate);
  }
  return steps;
}

bool is_judged_loss(const TensorVerdict& tensor, const ModelVocabulary& vocabulary) {
  return vocabulary.is_scalar(Role::kLoss, tensor.id) && tensor.status() == Status::kWithin &&
         tensor.comparison && tensor.find(Question::kTolerance) == nullptr &&
         tensor.comparison->elements == 1;
}

bool equal(double value, double mean, double tolerance = kOfMean) {
  return std::abs(value - mean) <= tolerance * std::abs(mean);
}

// `own` is the mean of the candidate's own losses.
Check check_of_mean(double candidate, double own, double tolerance, bool holds) {
  Check check;
  check.question = Question::kMean;
  check.value = std::abs(candidate - own);
  check.bound = tolerance * std::abs(own);
  check.detectable = tolerance;
  check.holds = holds;
  check.source = "exact (mean of the losses per token, up to 0.01 %)";
  if (!check.holds) {
    check.sentence = fmt::format(
        "it differs by {} from the mean of the candidate's own losses per token, {}; in the "
        "reference it equals that mean",
        short_number(std::abs(candidate / own - 1.0)),
        short_number(own));
  }
  return check;
}

}  // namespace

void check_losses(std::span<const Match> matches,
                  std::span<TensorVerdict> tensors,
                  const ModelVocabulary& vocabulary,
                  const Allowances& allowances) {
  const double tolerance = allowances.has(Allowance::kLossTolerance) ? kOfMean : 0.0;
  const auto is_judged = [&](const TensorVerdict& tensor) {
    return is_judged_loss(tensor, vocabulary);
  };
  if (std::ranges::none_of(tensors, is_judged)) {
    return;
  }
  std::map<std::int64_t, StepLosses> steps = losses_by_step(matches, vocabulary);
  for (const TensorVerdict& tensor : tensors) {
    if ((tensor.id.kind == Kind::kLoss || is_mask(tensor.id, vocabulary)) &&
        tensor.status() != Status::kWithin) {
      steps.erase(tensor.id.step);
    }
  }
  for (TensorVerdict& tensor : tensors) {
    const auto step = steps.find(tensor.id.step);
    if (step == steps.end() || !is_judged(tensor) || !step->second.reference.whole ||
        !step->second.candidate.whole) {
      continue;
    }
    const auto& [reference, candidate] = step->second;
    const double expected = tensor.comparison->reference_norm;  // losses are above zero
    const double found = tensor.comparison->factor * expected;
    const bool over_tokens = equal(expected, reference.over_tokens());
    const bool over_microbatches = equal(expected, reference.over_microbatches());
    const bool right =
        (over_tokens && equal(found, candidate.over_tokens(), tolerance)) ||
        (over_microbatches && equal(found, candidate.over_microbatches(), tolerance));
    if (over_tokens || over_microbatches) {
      const double own = over_tokens ? candidate.over_tokens() : candidate.over_microbatches();
      tensor.add(check_of_mean(found, own, tolerance, right));
    }
  }
}

}  // namespace ttrace
