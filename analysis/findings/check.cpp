#include "analysis/findings/check.h"

#include "trace/base/table_of_enum.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

// What value and bound of a check are: no numbers, numbers, or sizes of errors.
enum class Measures : std::uint8_t { kNothing, kNumber, kSize };

// The one table of precedence: the earlier row decides. Rows stand in the order of Question.
struct Precedence {
  Question question;
  std::string_view name;
  Tier tier;
  Symptom symptom;  // of a failed check that names no narrower one
  Measures measures;
  Question group;  // the first question of the group, of which only the first failed one speaks
  GivesBound bound;
  std::string_view words = {};  // for people; empty: the name
};

using enum Tier;
using enum Question;
using enum Measures;
using enum GivesBound;
constexpr auto kPrecedence = std::to_array<Precedence>({
    {kPresence, "presence", kT0, Symptom::kMissing, kNothing, kPresence, kAlways},
    {kStructure, "structure", kT0, Symptom::kRanksContradict, kNothing, kStructure, kAlways},
    {kType, "type", kT0, Symptom::kTypesDiffer, kNothing, kType, kNever},
    {kFormat, "format", kT0, Symptom::kTypesDiffer, kNothing, kFormat, kNever},
    {kRecompute, "recompute", kT0, Symptom::kRecompute, kNothing, kRecompute, kAlways},
    {kDraws, "draws", kT0, Symptom::kSameDraws, kNothing, kDraws, kNever},
    {kShape, "shape", kT0, Symptom::kShapesDiffer, kNothing, kShape, kNever},
    {kRows, "rows", kT0, Symptom::kRowsDiffer, kNothing, kRows, kNever},
    {kMessage, "message", kT0, Symptom::kMessage, kNothing, kMessage, kAlways},
    {kCollective, "collective", kT0, Symptom::kCollective, kNothing, kCollective, kAlways},
    {kSource, "source", kT0, Symptom::kSource, kNothing, kSource, kAlways},
    {kFinite, "finite", kT0, Symptom::kNonFinite, kNothing, kFinite, kNever},
    {kNorm, "norm", kT0, Symptom::kNorm, kNumber, kNorm, kIfItFails},
    {kMean, "mean", kT0, Symptom::kMean, kNumber, kMean, kIfItFails},
    {kCast, "cast", kT0, Symptom::kCast, kNothing, kCast, kNever},
    {kExact, "exact", kT0, Symptom::kNotEqual, kSize, kExact, kAlways, "equal values"},
    {kDyadic, "dyadic", kT3, Symptom::kNotExact, kSize, kDyadic, kAlways, "equal values"},
    {kOperator,
     "operator",
     kT1,
     Symptom::kOperator,
     kSize,
     kOperator,
     kNever,
     "its own operators, R"},
    {kOperatorPart,
     "operator_slice",
     kT1,
     Symptom::kOperator,
     kSize,
     kOperator,
     kNever,
     "the worst part"},
    {kOperatorFactor,
     "operator_factor",
     kT1,
     Symptom::kOperator,
     kSize,
     kOperator,
     kNever,
     "a factor"},
    {kLaw, "law", kT1, Symptom::kOperator, kSize, kOperator, kNever, "its law, R"},
    {kRouting, "flips", kT2, Symptom::kIllegalFlip, kSize, kRouting, kAlways, "choices of experts"},
    {kTolerance,
     "tolerance",
     kT2,
     Symptom::kOutOfBound,
     kSize,
     kTolerance,
     kAlways,
     "the user's tolerance"},
    {kWhole, "whole", kT2, Symptom::kOutOfBound, kSize, kWhole, kAlways, "the whole tensor"},
    {kPart, "slice", kT2, Symptom::kSlice, kSize, kWhole, kNever, "the worst part"},
    {kFactor, "factor", kT2, Symptom::kFactor, kSize, kWhole, kNever, "a factor"},
    {kTooAccurate,
     "too_accurate",
     kGolden,
     Symptom::kTooAccurate,
     kSize,
     kTooAccurate,
     kNever,
     "golden rho"},
    {kTooCoarse,
     "too_coarse",
     kGolden,
     Symptom::kTooCoarse,
     kSize,
     kTooCoarse,
     kNever,
     "golden rho"},
});

static_assert(has_a_row_for_each(kPrecedence, &Precedence::question, kTooCoarse));

// Questions of one tier stand together, so that what decides is also what is strongest.
constexpr bool tiers_stand_together() {
  std::size_t changes = 0;
  for (std::size_t i = 1; i < kPrecedence.size(); ++i) {
    changes += kPrecedence[i].tier == kPrecedence[i - 1].tier ? 0 : 1;
  }
  return changes == static_cast<std::size_t>(kGolden);
}
static_assert(tiers_stand_together());

const Precedence& row_of(Question question) {
  return kPrecedence.at(static_cast<std::size_t>(question));
}

}  // namespace

std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::kT0:
      return "T0";
    case Tier::kT1:
      return "T1";
    case Tier::kT2:
      return "T2";
    case Tier::kT3:
      return "T3";
    case Tier::kGolden:
      return "golden";
  }
  return "";
}

std::string_view name_of(Question question) {
  return row_of(question).name;
}

std::string_view words_of(Question question) {
  const Precedence& row = row_of(question);
  return row.words.empty() ? row.name : row.words;
}

Tier tier_of(Question question) {
  return row_of(question).tier;
}

GivesBound gives_bound(Question question) {
  return row_of(question).bound;
}

bool is_about_size(Question question) {
  return row_of(question).measures == kSize;
}

Symptom Check::symptom() const {
  if (holds) {
    return Symptom::kNone;
  }
  return narrower == Symptom::kNone ? row_of(question).symptom : narrower;
}

bool Check::has_numbers() const {
  return row_of(question).measures != kNothing;
}

double Check::share() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!has_numbers()) {
    return holds ? 0.0 : kInfinity;
  }
  if (question == kTooAccurate) {
    return bound == 0.0 ? 0.0 : value == 0.0 ? kInfinity : bound / value;
  }
  if (value == 0.0) {
    return holds ? 0.0 : kInfinity;  // squares of tiny differences may vanish
  }
  return bound == 0.0 ? kInfinity : std::abs(value) / bound;
}

double Check::term(Term term) const {
  const std::optional<double> found = find(term);
  TTRACE_CHECK(
      found, InternalError, "the check ", name_of(question), " has no term ", name_of(term));
  return *found;
}

std::optional<double> Check::find(Term term) const {
  const auto found = std::ranges::find(terms, term, &TermValue::term);
  return found == terms.end() ? std::nullopt : std::optional(found->value);
}

bool is_sharp(const Check& check) {
  return std::isfinite(check.bound) && (check.value == 0.0 || !(check.detectable > 1.0));
}

Check passed(Question question, std::string source) {
  Check check;
  check.question = question;
  check.source = std::move(source);
  return check;
}

Check failed(Question question, std::string sentence, std::vector<int> ranks) {
  Check check;
  check.question = question;
  check.holds = false;
  check.sentence = std::move(sentence);
  check.place.ranks = std::move(ranks);
  check.source = "exact (structure)";
  return check;
}

void insert_check(std::vector<Check>& checks, Check check) {
  const auto place = std::ranges::upper_bound(checks, check.question, {}, &Check::question);
  checks.insert(place, std::move(check));
}

bool speaks(const std::vector<Check>& checks, const Check& check) {
  if (check.holds) {
    return false;
  }
  for (const Check& other : checks) {
    if (!other.holds && row_of(other.question).group == row_of(check.question).group) {
      return other.question == check.question;
    }
    if (!other.holds && check.question == kTooCoarse) {
      return false;
    }
  }
  return true;
}

}  // namespace ttrace
