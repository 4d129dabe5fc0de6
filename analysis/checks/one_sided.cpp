#include "analysis/checks/one_sided.h"

#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using Ids = std::unordered_set<TensorId, TensorIdHash>;

// What `gradient` is the gradient of; nothing for gradients of parameters.
std::optional<TensorId> value_of(TensorId gradient) {
  if (gradient.kind != Kind::kGradInput && gradient.kind != Kind::kGradOutput) {
    return std::nullopt;
  }
  gradient.kind = gradient.kind == Kind::kGradInput ? Kind::kInput : Kind::kOutput;
  return gradient;
}

// Values that need no gradient on one side. A recomputed one speaks for the first forward, in which
// checkpointing computes no gradients of anything.
class NeedNone {
 public:
  void add(const Match& match, std::span<const Shard> shards) {
    const bool none = !shards.empty() && std::ranges::all_of(shards, [](const Shard& shard) {
      return shard.record->needs_no_gradient;
    });
    if (none) {
      TensorId id = match.id;
      id.recompute = false;
      ids_.insert(std::move(id));
    }
  }
  [[nodiscard]] bool contains(const TensorId& value) const { return ids_.contains(value); }

 private:
  Ids ids_;
};

// Steps in which all gradients of parameters are right. What is too large and whose operators are
// right counts as right. A micro-batch's gradient that one side does not record is part of the
// reduced one.
class RightSteps {
 public:
  explicit RightSteps(std::span<const TensorVerdict> tensors) {
    std::set<std::pair<std::int64_t, std::string>> reduced;
    for (const TensorVerdict& tensor : tensors) {
      if (tensor.id.kind == Kind::kMainGrad) {
        add(tensor);
        reduced.emplace(tensor.id.step, tensor.id.path);
      }
    }
    for (const TensorVerdict& tensor : tensors) {
      const bool is_part =
          tensor.fails(Question::kPresence) && reduced.contains({tensor.id.step, tensor.id.path});
      if (tensor.id.kind == Kind::kParamGrad && !is_part) {
        add(tensor);
      }
    }
  }
  [[nodiscard]] bool contains(std::int64_t step) const {
    return seen_.contains(step) && !wrong_.contains(step);
  }

 private:
  void add(const TensorVerdict& tensor) {
    seen_.insert(tensor.id.step);
    if (tensor.is_wrong() && !is_of_size_alone(tensor)) {
      wrong_.insert(tensor.id.step);
    }
  }

  std::set<std::int64_t> seen_;
  std::set<std::int64_t> wrong_;
};

// Parameters whose gradient one side has accumulated without autograd.
class Accumulated {
 public:
  void add(const Match& match, std::span<const Shard> shards) {
    const bool is_there = std::ranges::any_of(shards, [](const Shard& shard) {
      return shard.record->norm > 0.0 || shard.record->nonfinite > 0;
    });
    if (match.id.kind == Kind::kParamGrad && !shards.empty()) {
      seen_.emplace(match.id.step, match.id.path);
    } else if (match.id.kind == Kind::kMainGrad && is_there) {
      reduced_.emplace(match.id.step, match.id.path);
    }
  }
  [[nodiscard]] bool contains(const TensorId& gradient) const {
    const std::pair key(gradient.step, gradient.path);
    return gradient.kind == Kind::kParamGrad && !seen_.contains(key) && reduced_.contains(key);
  }

 private:
  using Keys = std::set<std::pair<std::int64_t, std::string>>;
  Keys seen_;     // by autograd
  Keys reduced_;  // and not zero
};

// Values that the reference has in one memory under several names, with one gradient: what a module
// returned, and what others that change nothing on one device handed on. Where the candidate's
// later one is a value of its own, its gradient is a part of the reference's, and the first one's
// answers for it.
class LaterNames {
 public:
  LaterNames(std::span<const Match> matches, std::span<const TensorVerdict> tensors) {
    for (const Match& match : matches) {
      matches_.emplace(match.id, &match);
    }
    for (const TensorVerdict& tensor : tensors) {
      if (tensor.is_wrong() && !is_of_size_alone(tensor)) {
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
    const auto own = matches_.find(gradient);
    const auto key = own == matches_.end() ? std::nullopt : key_of(*own->second);
    if (!key) {
      return false;
    }
    const Match& first = *first_.at(*key);
    return first.id != gradient && !wrong_.contains(first.id) && is_own_value(*own->second, first);
  }

 private:
  // Micro-batch, value and gradient of the reference.
  using Key = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::uint64_t>;

  [[nodiscard]] std::optional<Key> key_of(const Match& gradient) const {
    const auto value = gradient.id.kind == Kind::kGradOutput ? value_of(gradient.id) : std::nullopt;
    const auto found = value ? matches_.find(*value) : matches_.end();
    if (found == matches_.end() || gradient.reference.size() != 1 ||
        found->second->reference.size() != 1) {
      return std::nullopt;
    }
    return Key{gradient.id.step,
               gradient.id.microbatch,
               found->second->reference.front().record->digest,
               gradient.reference.front().record->digest};
  }

  [[nodiscard]] std::uint64_t order_of(const Match& gradient) const {
    return matches_.at(*value_of(gradient.id))->reference.front().record->order;
  }

  static bool is_own_value(const Match& gradient, const Match& first) {
    const auto differs = [](const Shard& left, const Shard& right) {
      return left.record->digest != right.record->digest;
    };
    return !gradient.candidate.empty() && !first.candidate.empty() &&
           (gradient.candidate.size() != first.candidate.size() ||
            differs(gradient.candidate.front(), first.candidate.front()));
  }

  std::unordered_map<TensorId, const Match*, TensorIdHash> matches_;
  std::map<Key, const Match*> first_;
  Ids wrong_;
};

std::vector<IdPattern> patterns_of(std::span<const std::string> declared) {
  std::vector<IdPattern> patterns;
  for (const std::string& pattern : declared) {
    patterns.emplace_back("untraced", pattern);
  }
  return patterns;
}

// What the records of one side show.
struct Recorded {
  NeedNone need_none = {};
  Accumulated accumulated = {};
  std::vector<IdPattern> untraced;

  void add(const Match& match, std::span<const Shard> shards) {
    need_none.add(match, shards);
    accumulated.add(match, shards);
  }
};

}  // namespace

Excuses one_sided(std::span<const Match> matches,
                  std::span<const TensorVerdict> tensors,
                  const Untraced& untraced) {
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
  Recorded reference{.untraced = patterns_of(untraced.reference)};
  Recorded candidate{.untraced = patterns_of(untraced.candidate)};
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
  const RightSteps right(tensors);
  const LaterNames later(matches, tensors);
  return excused(tensors, Excuse::kOneSided, [&](const TensorVerdict& tensor) {
    if (is_different(tensor)) {
      return later.contains(tensor.id);
    }
    Recorded& other = tensor.is_in_reference ? candidate : reference;
    if (!is_missing(tensor) || any_found_in(other.untraced, to_string(tensor.id))) {
      return false;
    }
    const std::optional<TensorId> value = value_of(tensor.id);
    if (!value) {
      return other.accumulated.contains(tensor.id);
    }
    const bool is_harmless = !tensor.is_in_reference || right.contains(value->step);
    return copied.contains(*value) || (other.need_none.contains(*value) && is_harmless);
  });
}

}  // namespace ttrace
