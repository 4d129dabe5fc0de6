#include "analysis/findings/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

struct StatusRow {
  std::string_view name;
  bool is_judged;  // it says how the tensor stands to its bounds
};

constexpr auto kStatuses = std::to_array<StatusRow>({
    {"within", true},
    {"diverged", true},
    {"missing_in_candidate", true},
    {"missing_in_reference", true},
    {"incomplete", false},
    {"behind_flip", false},
    {"inherited", true},
    {"not_judged", false},
});
static_assert(kStatuses.size() == static_cast<std::size_t>(Status::kNotJudged) + 1);

const StatusRow& row_of(Status status) {
  return kStatuses.at(static_cast<std::size_t>(status));
}

// What an excuse does, in the order in which excuses apply.
struct ExcuseRow {
  Excuse excuse;
  std::string_view name;
  std::optional<Status> status;    // of the tensor that has it
  std::optional<bool> of_failure;  // the status needs that a check failed, or that none did
  bool silences;                   // what failed is not worth a word
  bool permits;                    // what failed stays wrong, but is no finding
  std::string_view why = {};       // the tensor is not judged; empty: something else answers for it
};

constexpr auto kExcuses = std::to_array<ExcuseRow>({
    {Excuse::kInterrupted, "interrupted", Status::kIncomplete, false, false, false},
    {Excuse::kRounds,
     "reference_rounds",
     Status::kNotJudged,
     false,
     false,
     false,
     "the reference itself rounds here"},
    {Excuse::kCopied, "copied_input", std::nullopt, false, false, false},
    {Excuse::kReplaced,
     "replaced_input",
     Status::kNotJudged,
     true,
     true,
     false,
     "its values were replaced, and no record shows what it should be"},
    {Excuse::kOneSided,
     "one_sided",
     Status::kNotJudged,
     true,
     true,
     false,
     "on the other side it belongs to an alias, or nothing needs it"},
    {Excuse::kUnaligned, "unaligned_samples", Status::kNotJudged, false, false, false},
    {Excuse::kOtherData,
     "other_data",
     Status::kNotJudged,
     std::nullopt,
     true,
     false,
     "the programs read other data, and the reference does not repeat its own"},
    {Excuse::kNotFinite,
     "not_finite",
     Status::kNotJudged,
     false,
     false,
     false,
     "no element is finite on both sides"},
    {Excuse::kNoBound,
     "no_bound",
     Status::kNotJudged,
     false,
     false,
     false,
     "round-off explains an error as large as the tensor itself"},
    {Excuse::kHarmlessScale, "harmless_scale", Status::kWithin, true, true, false},
    {Excuse::kBehindFlip, "behind_flip", Status::kBehindFlip, true, false, false},
    {Excuse::kRandom, "random", Status::kNotJudged, true, false, false},
    {Excuse::kInherited, "inherited", Status::kInherited, true, false, false},
    {Excuse::kAllowed, "allowed", std::nullopt, false, false, true},
    {Excuse::kUntraced, "untraced", std::nullopt, false, false, true},
    {Excuse::kDeclared, "declared", std::nullopt, false, false, true},
});

const ExcuseRow& row_of(Excuse excuse) {
  return *std::ranges::find(kExcuses, excuse, &ExcuseRow::excuse);
}

// A ratio of two errors is near 1 if all is well, so it is no distance from a bound.
bool is_distance(const Check& check) {
  return check.tier() != Tier::kGolden || !check.holds;
}

// Whether one of the excuses does `what`.
bool has_any(const std::vector<Excused>& excuses, bool ExcuseRow::*what) {
  return std::ranges::any_of(excuses,
                             [&](const Excused& excused) { return row_of(excused.excuse).*what; });
}

}  // namespace

std::string_view name_of(Status status) {
  return row_of(status).name;
}

bool is_judged(Status status) {
  return row_of(status).is_judged;
}

std::string_view name_of(Excuse excuse) {
  return row_of(excuse).name;
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

std::string_view TensorVerdict::why_not_judged() const {
  const auto said = std::ranges::find_if(
      excuses, [](const Excused& excused) { return !row_of(excused.excuse).why.empty(); });
  return said == excuses.end() ? "something else answers for it" : row_of(said->excuse).why;
}

bool TensorVerdict::has(Excuse excuse) const {
  return std::ranges::find(excuses, excuse, &Excused::excuse) != excuses.end();
}

bool TensorVerdict::fails(Question question) const {
  return std::ranges::any_of(
      checks, [&](const Check& check) { return check.question == question && !check.holds; });
}

bool TensorVerdict::counts_as_failure(const Check& check) const {
  return speaks(checks, check) && !is_answered_by_copy(check);
}

bool TensorVerdict::is_answered_by_copy(const Check& check) const {
  return check.question == Question::kPresence && has(Excuse::kCopied);
}

const Check* TensorVerdict::deciding() const {
  const auto found =
      std::ranges::find_if(checks, [&](const Check& check) { return counts_as_failure(check); });
  return found == checks.end() ? nullptr : &*found;
}

const Check* TensorVerdict::ruling() const {
  const Status is = status();
  if (has(Excuse::kHarmlessScale)) {
    return nullptr;
  }
  if (is != Status::kWithin && is != Status::kInherited) {
    return deciding();
  }
  const Check* nearest = nullptr;
  for (const Check& check : checks) {
    const bool counts = is == Status::kInherited
                            ? check.tier() == Tier::kT1
                            : is_distance(check) && !is_answered_by_copy(check);
    nearest = counts && (nearest == nullptr || check.share() > nearest->share()) ? &check : nearest;
  }
  return nearest;
}

double TensorVerdict::largest_share() const {
  double largest = 0.0;
  for (const Check& check : checks) {
    const bool counts =
        is_distance(check) && !is_answered_by_copy(check) && !has(Excuse::kHarmlessScale);
    largest = counts ? std::max(largest, check.share()) : largest;
  }
  return largest;
}

bool TensorVerdict::has_too_little_noise() const {
  const Check* const whole = find(Question::kWhole);
  const Check* const golden = find(Question::kTooCoarse);
  const bool is_beyond_noise = whole != nullptr && whole->origin == BoundOrigin::kNoise &&
                               !whole->holds && whole->bound > 0.0;
  return is_beyond_noise && golden != nullptr && golden->term(Term::kIsAsAccurate) > 0.0;
}

Tier TensorVerdict::tier() const {
  const Check* const check = deciding() == nullptr ? principal() : deciding();
  return check == nullptr ? Tier::kT0 : check->tier();
}

Status TensorVerdict::status() const {
  const Check* const failure = deciding();
  for (const Excused& excused : excuses) {
    const ExcuseRow& row = row_of(excused.excuse);
    if (row.status && row.of_failure.value_or(failure != nullptr) == (failure != nullptr)) {
      return *row.status;
    }
  }
  if (failure == nullptr) {
    return Status::kWithin;
  }
  if (failure->question == Question::kPresence) {
    return is_in_reference ? Status::kMissingInCandidate : Status::kMissingInReference;
  }
  return Status::kDiverged;
}

Symptom TensorVerdict::symptom() const {
  const Check* const failure = deciding();
  return failure == nullptr || has_any(excuses, &ExcuseRow::silences) ? Symptom::kNone
                                                                      : failure->symptom();
}

std::vector<std::string> TensorVerdict::causes() const {
  std::vector<std::string> sentences;
  if (has_any(excuses, &ExcuseRow::silences)) {
    return sentences;
  }
  for (const Excused& excused : excuses) {
    if (!excused.sentence.empty()) {
      sentences.push_back(excused.sentence);
    }
  }
  for (const Check& check : checks) {
    if (counts_as_failure(check)) {
      sentences.push_back(check.sentence);
    }
  }
  return sentences;
}

std::string TensorVerdict::cause() const {
  std::string text;
  const char* separator = "; ";  // behind what an excuse says
  for (const std::string& sentence : causes()) {
    const Check* const first = deciding();
    text += (text.empty() ? "" : separator) + sentence;
    separator = first != nullptr && sentence == first->sentence ? "; also: " : separator;
  }
  return text;
}

std::vector<int> TensorVerdict::ranks() const {
  const Check* const failure = deciding();
  return failure == nullptr || failure->place.ranks.empty() ? holders : failure->place.ranks;
}

const Hypothesis* TensorVerdict::claim() const {
  const auto found = std::ranges::find_if(
      checks, [](const Check& check) { return !check.holds && check.claim.has_value(); });
  return found == checks.end() ? nullptr : &*found->claim;
}

bool TensorVerdict::allowed() const {
  return is_wrong() && has_any(excuses, &ExcuseRow::permits);
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
  const Check* last = nullptr;
  for (const Check& check : checks) {
    const GivesBound gives = gives_bound(check.question);
    if (gives == GivesBound::kIfItFails && !check.holds) {
      return &check;
    }
    if (gives == GivesBound::kAlways && !is_answered_by_copy(check)) {
      last = &check;
    }
  }
  return last == nullptr ? nullptr : find(last->question);
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
  return own->question == Question::kTolerance ? own->term(Term::kNorm) : own->bound;
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

bool is_answered(const TensorVerdict& tensor) {
  return is_judged(tensor.status()) && !(tensor.allowed() && tensor.status() != Status::kDiverged);
}

bool is_weak(const Check& operators) {
  // Six times the 0.17 % by which a rounding of BF16 changes a norm: more than storing the result
  // does. A report notes it; no bound follows.
  constexpr double kMuch = 0.01;
  return operators.term(Term::kNative) > kMuch * operators.term(Term::kNorm);
}

}  // namespace ttrace
