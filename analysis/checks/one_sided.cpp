#include "analysis/checks/one_sided.h"

#include "analysis/align/index_by_id.h"
#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using Ids = std::unordered_set<TensorId, TensorIdHash>;
using Keys = std::set<std::pair<std::int64_t, std::string>>;  // step and parameter

// What `gradient` is the gradient of; nothing for gradients of parameters.
std::optional<TensorId> value_of(TensorId gradient) {
  if (gradient.kind != Kind::kGradInput && gradient.kind != Kind::kGradOutput) {
    return std::nullopt;
  }
  gradient.kind = gradient.kind == Kind::kGradInput ? Kind::kInput : Kind::kOutput;
  return gradient;
}

bool is_wrong_itself(const TensorVerdict& tensor) {
  return tensor.is_wrong() && !is_of_size_alone(tensor);
}

// Steps in which all gradients of parameters are right. What is too large and whose operators are
// right counts as right. A micro-batch's gradient that one side does not record is part of the
// reduced one.
std::set<std::int64_t> right_steps(std::span<const TensorVerdict> tensors) {
  Keys reduced;
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.id.kind == Kind::kMainGrad) {
      reduced.emplace(tensor.id.step, tensor.id.path);
    }
  }
  std::set<std::int64_t> steps;
  std::set<std::int64_t> wrong;
  for (const TensorVerdict& tensor : tensors) {
    const bool is_part = tensor.id.kind == Kind::kParamGrad && tensor.fails(Question::kPresence) &&
                         reduced.contains({tensor.id.step, tensor.id.path});
    if (family_of(tensor.id.kind) == KindFamily::kParameterGradient && !is_part) {
      steps.insert(tensor.id.step);
      if (is_wrong_itself(tensor)) {
        wrong.insert(tensor.id.step);
      }
    }
  }
  std::erase_if(steps, [&](std::int64_t step) { return wrong.contains(step); });
  return steps;
}

// Values that the reference has in one memory under several names, with one gradient: what a module
// returned, and what others that change nothing on one device handed on. Where the candidate's
// later one is a value of its own, its gradient is a part of the reference's, and the first one's
// answers for it.
class LaterNames {
 public:
  LaterNames(std::span<const Match> matches, std::span<const TensorVerdict> tensors)
      : matches_(matches) {
    for (const TensorVerdict& tensor : tensors) {
      if (is_wrong_itself(tensor)) {
        wrong_.insert(tensor.id);
      }
    }
    for (const Match& match : matches) {
      if (const auto key = key_of(match)) {
        const auto [found, is_new] = first_.emplace(*key, &match);
        if (!is_new && order_of(match) < order_of(*found->second)) {
          found->second = &match;
        }
      }
    }
  }

  [[nodiscard]] bool contains(const TensorId& gradient) const {
    const Match* const own = matches_.find(gradient);
    const auto key = own == nullptr ? std::nullopt : key_of(*own);
    if (!key) {
      return false;
    }
    const Match& first = *first_.at(*key);
    return first.id != gradient && !wrong_.contains(first.id) && is_own_value(*own, first);
  }

 private:
  // Micro-batch, value and gradient of the reference.
  using Key = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::uint64_t>;

  [[nodiscard]] std::optional<Key> key_of(const Match& gradient) const {
    const auto value = gradient.id.kind == Kind::kGradOutput ? value_of(gradient.id) : std::nullopt;
    const Match* const found = value ? matches_.find(*value) : nullptr;
    if (found == nullptr || gradient.reference.size() != 1 || found->reference.size() != 1) {
      return std::nullopt;
    }
    return Key{gradient.id.step,
               gradient.id.microbatch,
               found->reference.front().record->digest,
               gradient.reference.front().record->digest};
  }

  [[nodiscard]] std::uint64_t order_of(const Match& gradient) const {
    return matches_.find(*value_of(gradient.id))->reference.front().record->order;
  }

  static bool is_own_value(const Match& gradient, const Match& first) {
    const auto differs = [](const Shard& left, const Shard& right) {
      return left.record->digest != right.record->digest;
    };
    return !gradient.candidate.empty() && !first.candidate.empty() &&
           (gradient.candidate.size() != first.candidate.size() ||
            differs(gradient.candidate.front(), first.candidate.front()));
  }

  IndexById<const Match> matches_;
  std::map<Key, const Match*> first_;
  Ids wrong_;
};

// What the records of one side show.
struct Recorded {
  std::vector<IdPattern> untraced;
  // Values that need no gradient. A recomputed one speaks for the first forward, in which
  // checkpointing computes no gradients of anything.
  Ids need_none = {};
  Keys by_autograd = {};  // parameters whose gradients autograd has computed
  Keys reduced = {};      // and those whose reduced gradient is not zero

  void add(const Match& match, std::span<const Shard> shards) {
    if (shards.empty()) {
      return;
    }
    if (std::ranges::all_of(shards,
                            [](const Shard& shard) { return shard.record->needs_no_gradient; })) {
      TensorId id = match.id;
      id.recompute = false;
      need_none.insert(std::move(id));
    }
    const bool is_there = std::ranges::any_of(shards, [](const Shard& shard) {
      return shard.record->norm > 0.0 || shard.record->nonfinite > 0;
    });
    if (match.id.kind == Kind::kParamGrad) {
      by_autograd.emplace(match.id.step, match.id.path);
    } else if (match.id.kind == Kind::kMainGrad && is_there) {
      reduced.emplace(match.id.step, match.id.path);
    }
  }
  // Whether the side has accumulated a parameter's gradient without autograd.
  [[nodiscard]] bool has_accumulated(const TensorId& gradient) const {
    const std::pair key(gradient.step, gradient.path);
    return gradient.kind == Kind::kParamGrad && !by_autograd.contains(key) && reduced.contains(key);
  }
};

}  // namespace

Excuses one_sided(std::span<const Match> matches,
                  std::span<const TensorVerdict> tensors,
                  std::span<const std::string> untraced_by_reference,
                  std::span<const std::string> untraced_by_candidate) {
  const auto is_missing = [](const TensorVerdict& tensor) {
    return tensor.fails(Question::kPresence) && is_gradient(tensor.id.kind);
  };
  const auto is_different = [](const TensorVerdict& tensor) {
    return tensor.id.kind == Kind::kGradOutput && tensor.is_wrong() &&
           !tensor.fails(Question::kPresence);
  };
  if (std::ranges::none_of(tensors, [&](const TensorVerdict& tensor) {
        return is_missing(tensor) || is_different(tensor);
      })) {
    return {};
  }
  Recorded reference{.untraced = id_patterns("untraced", untraced_by_reference)};
  Recorded candidate{.untraced = id_patterns("untraced", untraced_by_candidate)};
  for (const Match& match : matches) {
    reference.add(match, match.reference);
    candidate.add(match, match.candidate);
  }
  Ids copied;
  for (const TensorVerdict& tensor : tensors) {
    if (tensor.has(Excuse::kCopied) || tensor.has(Excuse::kReplaced)) {
      copied.insert(tensor.id);
    }
  }
  const std::set<std::int64_t> right = right_steps(tensors);
  std::optional<LaterNames> later;
  if (std::ranges::any_of(tensors, is_different)) {
    later.emplace(matches, tensors);
  }
  return excused(tensors, Excuse::kOneSided, [&](const TensorVerdict& tensor) {
    if (is_different(tensor)) {
      return later->contains(tensor.id);
    }
    Recorded& other = tensor.is_in_reference ? candidate : reference;
    if (!is_missing(tensor) || any_found_in(other.untraced, to_string(tensor.id))) {
      return false;
    }
    const std::optional<TensorId> value = value_of(tensor.id);
    if (!value) {
      return other.has_accumulated(tensor.id);
    }
    const bool is_harmless = !tensor.is_in_reference || right.contains(value->step);
    return copied.contains(*value) || (other.need_none.contains(*value) && is_harmless);
  });
}

}  // namespace ttrace
