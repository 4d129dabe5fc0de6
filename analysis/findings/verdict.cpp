#include "analysis/findings/verdict.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

// The checks to which a tensor's own bound may belong; the first one that was made counts.
constexpr std::array kPrincipal = {Question::kTolerance,
                                   Question::kDyadic,
                                   Question::kRouting,
                                   Question::kExact,
                                   Question::kWhole,
                                   Question::kSource,
                                   Question::kMessage,
                                   Question::kCollective,
                                   Question::kRecompute,
                                   Question::kPresence,
                                   Question::kStructure};

// The strongest first: what is wrong there needs no other explanation.
constexpr std::array kTiers = {Tier::kT0, Tier::kT3, Tier::kT1, Tier::kT2, Tier::kGolden};

}  // namespace

std::string_view name_of(Status status) {
  switch (status) {
    case Status::kWithin:
      return "within";
    case Status::kDiverged:
      return "diverged";
    case Status::kMissingInCandidate:
      return "missing_in_candidate";
    case Status::kMissingInReference:
      return "missing_in_reference";
    case Status::kIncomplete:
      return "incomplete";
    case Status::kBehindFlip:
      return "behind_flip";
    case Status::kInherited:
      return "inherited";
    case Status::kNotJudged:
      return "not_judged";
  }
  return "";
}

std::string_view name_of(Excuse excuse) {
  switch (excuse) {
    case Excuse::kInterrupted:
      return "interrupted";
    case Excuse::kRounds:
      return "reference_rounds";
    case Excuse::kCopied:
      return "copied_input";
    case Excuse::kReplaced:
      return "replaced_input";
    case Excuse::kHarmlessScale:
      return "harmless_scale";
    case Excuse::kBehindFlip:
      return "behind_flip";
    case Excuse::kInherited:
      return "inherited";
    case Excuse::kAllowed:
      return "allowed";
    case Excuse::kUntraced:
      return "untraced";
    case Excuse::kDeclared:
      return "declared";
  }
  return "";
}

void TensorVerdict::add(Check check) {
  insert_check(checks, std::move(check));
}

void TensorVerdict::excuse(Excuse excuse, std::string sentence) {
  excuses.push_back({excuse, std::move(sentence)});
  std::ranges::stable_sort(excuses, {}, &Excused::excuse);
}

const Check* TensorVerdict::find(Question question) const {
  const auto found = std::ranges::find(checks, question, &Check::question);
  return found == checks.end() ? nullptr : &*found;
}

bool TensorVerdict::has(Excuse excuse) const {
  return std::ranges::find(excuses, excuse, &Excused::excuse) != excuses.end();
}

bool TensorVerdict::fails(Question question) const {
  return std::ranges::any_of(
      checks, [&](const Check& check) { return check.question == question && !check.holds; });
}

bool TensorVerdict::counts_as_failure(const Check& check) const {
  return speaks(checks, check) && !(check.question == Question::kPresence && has(Excuse::kCopied));
}

const Check* TensorVerdict::first_failure() const {
  const auto found =
      std::ranges::find_if(checks, [&](const Check& check) { return counts_as_failure(check); });
  return found == checks.end() ? nullptr : &*found;
}

Tier TensorVerdict::tier() const {
  for (const Tier tier : kTiers) {
    if (std::ranges::any_of(checks, [&](const Check& check) {
          return check.tier() == tier && counts_as_failure(check);
        })) {
      return tier;
    }
  }
  const Check* const own = principal();
  return own == nullptr ? Tier::kT0 : own->tier();
}

Status TensorVerdict::status() const {
  const Check* const failure = first_failure();
  if (failure == nullptr) {
    return has(Excuse::kInterrupted) ? Status::kIncomplete
           : has(Excuse::kRounds)    ? Status::kNotJudged
                                     : Status::kWithin;
  }
  if (has(Excuse::kHarmlessScale)) {
    return Status::kWithin;
  }
  if (has(Excuse::kReplaced)) {
    return Status::kNotJudged;
  }
  if (has(Excuse::kBehindFlip)) {
    return Status::kBehindFlip;
  }
  if (has(Excuse::kInherited)) {
    return Status::kInherited;
  }
  if (failure->question == Question::kPresence) {
    return is_in_reference ? Status::kMissingInCandidate : Status::kMissingInReference;
  }
  return Status::kDiverged;
}

Symptom TensorVerdict::symptom() const {
  if (has(Excuse::kHarmlessScale) || has(Excuse::kReplaced)) {
    return Symptom::kNone;
  }
  const Check* const failure = first_failure();
  return failure == nullptr ? Symptom::kNone : failure->symptom;
}

std::string TensorVerdict::cause() const {
  std::string text;
  if (has(Excuse::kHarmlessScale) || has(Excuse::kReplaced)) {
    return text;
  }
  for (const Check& check : checks) {
    if (counts_as_failure(check)) {
      text += (text.empty() ? "" : "; also: ") + check.sentence;
    }
  }
  for (const Excused& excused : excuses) {
    if (!excused.sentence.empty()) {
      text = text.empty() ? excused.sentence : excused.sentence + "; " + text;
    }
  }
  return text;
}

std::vector<int> TensorVerdict::ranks() const {
  const Check* const failure = first_failure();
  return failure == nullptr || failure->place.ranks.empty() ? holders : failure->place.ranks;
}

std::optional<Diagnosis> TensorVerdict::known_cause() const {
  for (const Check& check : checks) {
    if (!check.holds && check.known_cause) {
      return check.known_cause;
    }
  }
  return std::nullopt;
}

bool TensorVerdict::allowed() const {
  return has(Excuse::kAllowed) || has(Excuse::kUntraced) || has(Excuse::kDeclared);
}

bool TensorVerdict::is_wrong() const {
  const Status is = status();
  return is == Status::kDiverged || is == Status::kMissingInCandidate ||
         is == Status::kMissingInReference;
}

bool TensorVerdict::is_finding() const {
  return is_wrong() && !allowed();
}

const Check* TensorVerdict::principal() const {
  for (const Question question : {Question::kNorm, Question::kMean}) {
    if (fails(question)) {
      return find(question);
    }
  }
  for (const Question question : kPrincipal) {
    const Check* const check = find(question);
    const bool is_answered_by_copy = question == Question::kPresence && has(Excuse::kCopied);
    if (check != nullptr && !is_answered_by_copy) {
      return check;
    }
  }
  return nullptr;
}

BoundOrigin TensorVerdict::origin() const {
  const Check* const own = principal();
  return own == nullptr ? BoundOrigin::kExact : own->origin;
}

std::string TensorVerdict::bound_source() const {
  const Check* const own = principal();
  if (has(Excuse::kRounds)) {
    return "none (the reference itself rounds here)";
  }
  return own == nullptr ? "exact (structure)" : own->source;
}

double TensorVerdict::bound() const {
  const Check* const own = principal();
  if (has(Excuse::kRounds)) {
    return std::numeric_limits<double>::infinity();
  }
  if (own == nullptr || !own->has_numbers()) {
    return 0.0;
  }
  return own->question == Question::kTolerance ? own->term("norm") : own->bound;
}

double TensorVerdict::detectable() const {
  const Check* const own = principal();
  return own == nullptr ? 0.0 : own->detectable;
}

double TensorVerdict::ratio() const {
  const Check* const own = principal();
  if (own != nullptr && own->question == Question::kTolerance) {
    return own->value;
  }
  if (!comparison || comparison->error == 0.0) {
    return 0.0;
  }
  return bound() == 0.0 ? std::numeric_limits<double>::infinity() : comparison->error / bound();
}

const Check* TensorVerdict::deciding() const {
  const Tier decided = tier();
  for (const Check& check : checks) {
    if (!check.holds && check.tier() == decided) {
      return &check;
    }
  }
  return nullptr;
}

bool is_weak(const Check& operators) {
  return operators.term("native") > 0.01 * operators.term("norm");
}

}  // namespace ttrace
