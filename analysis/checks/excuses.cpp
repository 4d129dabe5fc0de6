#include "analysis/checks/excuses.h"

#include "analysis/bounds/limits.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace ttrace {
namespace {

// Whether a flip may have led to this finding. Wrong operators do not follow from one: they were
// given the candidate's own inputs.
bool may_follow_from_flip(const TensorVerdict& tensor) {
  const bool operators_fail = std::ranges::any_of(
      tensor.checks, [](const Check& check) { return check.tier() == Tier::kT1 && !check.holds; });
  if (operators_fail) {
    return false;
  }
  switch (tensor.symptom()) {
    case Symptom::kRowsDiffer:
    case Symptom::kIllegalFlip:
      return true;
    case Symptom::kNotEqual:
    case Symptom::kFactor:
    case Symptom::kSlice:
    case Symptom::kOutOfBound:
    case Symptom::kTooCoarse:
      return tensor.origin() == BoundOrigin::kNoise ||
             tensor.origin() == BoundOrigin::kClassDefault;
    default:
      return false;
  }
}

// Whether NaN and Inf are all that is wrong, but for the size of errors.
bool is_not_finite_alone(const TensorVerdict& tensor) {
  return tensor.fails(Question::kFinite) &&
         std::ranges::all_of(tensor.checks, [](const Check& check) {
           return check.holds || check.question == Question::kFinite || check.tier() == Tier::kT2;
         });
}

// How large its error is, in bounds, where every Inf of one side alone is the smallest number that
// overflows.
double share_with_overflows(const TensorVerdict& tensor) {
  const Check* const finite = tensor.find(Question::kFinite);
  return finite == nullptr || finite->holds ? tensor.ratio()
                                            : finite->term(Term::kError) / tensor.bound();
}

}  // namespace

bool is_of_size_alone(const TensorVerdict& tensor) {
  const Check* const operators = tensor.find(Question::kOperator);
  const bool are_right = operators != nullptr && operators->holds &&
                         !tensor.fails(Question::kOperatorPart) &&
                         !tensor.fails(Question::kOperatorFactor);
  return are_right && tensor.status() == Status::kDiverged &&
         (tensor.tier() == Tier::kT2 || tensor.symptom() == Symptom::kTooCoarse ||
          (is_not_finite_alone(tensor) && operators->term(Term::kUnlike) == 0.0));
}

Excuses behind_flips(std::span<const TensorVerdict> tensors) {
  Excuses excuses(tensors.size());
  std::map<std::pair<std::int64_t, std::int64_t>, TensorId> flipped;  // by step, micro-batch
  std::optional<TensorId> first;                                      // of any micro-batch
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorVerdict& tensor = tensors[i];
    const std::pair place{tensor.id.step, tensor.id.microbatch};
    const TensorId* flip = nullptr;
    if (const auto found = flipped.find(place); found != flipped.end()) {
      flip = &found->second;
    } else if (first && (tensor.id.microbatch == kNoMicrobatch || tensor.id.step > first->step)) {
      flip = &*first;
    }
    if (flip != nullptr && tensor.is_wrong() && may_follow_from_flip(tensor)) {
      excuses[i] =
          Excused{Excuse::kBehindFlip,
                  fmt::format("tokens go to other experts from {} on, so no sharp bound applies",
                              to_string(*flip))};
    }
    const Check* const routing = tensor.find(Question::kRouting);
    if (routing != nullptr && routing->term(Term::kFlips) > 0.0) {
      flipped.emplace(place, tensor.id);
      first = first ? first : std::optional(tensor.id);
    }
  }
  return excuses;
}

Excuses inherited(std::span<const TensorVerdict> tensors,
                  const Excuses& choices,
                  const Allowances& allowances) {
  // Largest of clean runs whose operators were right: 1.36, of a factor, over 40 random BF16
  // layouts.
  constexpr double kMostThatAddsUp = 2.0;
  const double most = allowances.granted(Allowance::kAddedUp, kMostThatAddsUp);
  const bool follows = allowances.has(Allowance::kBehindFindings);
  const bool may_overflow = allowances.has(Allowance::kOverflows);
  Excuses excuses(tensors.size());
  bool wrong = false;      // something before is
  bool unseen = false;     // something before could not be checked on its own
  bool overflown = false;  // something before is Inf on one side alone, by round-off
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorVerdict& tensor = tensors[i];
    const bool is_behind_choice = i < choices.size() && choices[i].has_value();
    const bool is_not_finite = tensor.fails(Question::kFinite);
    const bool adds_up = !unseen && tensor.comparison && (may_overflow || !is_not_finite) &&
                         (share_with_overflows(tensor) <= most ||
                          (overflown && is_not_finite && tensor.ratio() <= most));
    if (is_of_size_alone(tensor) && !is_behind_choice && ((wrong && follows) || adds_up)) {
      excuses[i] = Excused{Excuse::kInherited, ""};
      overflown = overflown || (is_not_finite && !wrong);
    }
    wrong = wrong || (tensor.is_wrong() && !is_behind_choice && !excuses[i]);
    unseen =
        unseen || (tensor.find(Question::kOperator) == nullptr &&
                   tensor.origin() != BoundOrigin::kExact && has_own_operators(tensor.id.kind));
  }
  return excuses;
}

Excuses either(Excuses first, const Excuses& second) {
  first.resize(std::max(first.size(), second.size()));
  for (std::size_t i = 0; i < second.size(); ++i) {
    first[i] = first[i] ? first[i] : second[i];
  }
  return first;
}

Excuses excused(std::span<const TensorVerdict> tensors,
                Excuse excuse,
                const std::function<bool(const TensorVerdict&)>& is_excused) {
  Excuses excuses(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_excused(tensors[i])) {
      excuses[i] = Excused{excuse, ""};
    }
  }
  return excuses;
}

Excuses untraced(std::span<const TensorVerdict> tensors,
                 Status missing,
                 std::span<const std::string> declared) {
  if (declared.empty()) {
    return {};
  }
  std::vector<IdPattern> patterns = id_patterns("untraced", declared);
  return excused(tensors, Excuse::kUntraced, [&](const TensorVerdict& tensor) {
    return tensor.status() == missing && any_found_in(patterns, to_string(tensor.id));
  });
}

bool Permission::covers(const TensorVerdict& tensor) {
  return tensor.is_wrong() && any_found_in(tensor.status() == Status::kDiverged ? failed : missing,
                                           to_string(tensor.id));
}

Excuses permitted(std::span<const TensorVerdict> tensors, Permission permission) {
  if (permission.empty()) {
    return {};
  }
  return excused(tensors, Excuse::kAllowed, [&](const TensorVerdict& tensor) {
    return permission.covers(tensor);
  });
}

void warn_of_unused(std::span<const TensorVerdict> tensors,
                    Permission permission,
                    std::vector<std::string>& warnings) {
  if (permission.empty()) {
    return;
  }
  for (const TensorVerdict& tensor : tensors) {
    if (!tensor.has(Excuse::kUntraced) && !tensor.has(Excuse::kDeclared)) {
      static_cast<void>(permission.covers(tensor));
    }
  }
  add_unused(permission.missing, "missing tensor", warnings);
  add_unused(permission.failed, "tensor out of bound", warnings);
}

}  // namespace ttrace
