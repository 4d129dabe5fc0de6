#include "analysis/findings/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

// The one table of precedence. Rows stand in the order of Question.
struct Precedence {
  Question question;
  std::string_view name;
  Tier tier;
  bool is_about_size;
  bool has_numbers;
  Question speaker;  // the first question of the group; of a group, only the first failed question
                     // speaks
};

using enum Question;
constexpr auto kPrecedence = std::to_array<Precedence>({
    {kOperator, "operator", Tier::kT1, true, true, kOperator},
    {kOperatorPart, "operator_slice", Tier::kT1, true, true, kOperator},
    {kOperatorFactor, "operator_factor", Tier::kT1, true, true, kOperator},
    {kPresence, "presence", Tier::kT0, false, false, kPresence},
    {kStructure, "structure", Tier::kT0, false, false, kStructure},
    {kType, "type", Tier::kT0, false, false, kType},
    {kRecompute, "recompute", Tier::kT0, false, false, kRecompute},
    {kShape, "shape", Tier::kT0, false, false, kShape},
    {kRows, "rows", Tier::kT0, false, false, kRows},
    {kMessage, "message", Tier::kT0, false, false, kMessage},
    {kCollective, "collective", Tier::kT0, false, false, kCollective},
    {kSource, "source", Tier::kT0, false, false, kSource},
    {kFinite, "finite", Tier::kT0, false, false, kFinite},
    {kNorm, "norm", Tier::kT0, false, true, kNorm},
    {kMean, "mean", Tier::kT0, false, true, kMean},
    {kExact, "exact", Tier::kT0, true, true, kExact},
    {kDyadic, "dyadic", Tier::kT3, true, true, kDyadic},
    {kRouting, "flips", Tier::kT2, true, true, kRouting},
    {kTolerance, "tolerance", Tier::kT2, true, true, kTolerance},
    {kWhole, "whole", Tier::kT2, true, true, kWhole},
    {kPart, "slice", Tier::kT2, true, true, kWhole},
    {kFactor, "factor", Tier::kT2, true, true, kWhole},
    {kFormat, "format", Tier::kT0, false, false, kFormat},
    {kTooAccurate, "too_accurate", Tier::kGolden, true, true, kTooAccurate},
    {kTooCoarse, "too_coarse", Tier::kGolden, true, true, kTooCoarse},
});

constexpr bool rows_stand_in_order() {
  for (std::size_t i = 0; i < kPrecedence.size(); ++i) {
    if (kPrecedence[i].question != static_cast<Question>(i)) {
      return false;
    }
  }
  return kPrecedence.back().question == kTooCoarse;
}
static_assert(rows_stand_in_order());

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

std::string_view name_of(Symptom symptom) {
  constexpr auto kNames = std::to_array<std::pair<Symptom, std::string_view>>({
      {Symptom::kNone, "none"},
      {Symptom::kMissing, "missing"},
      {Symptom::kRanksContradict, "ranks_contradict"},
      {Symptom::kGap, "gap"},
      {Symptom::kOverlap, "overlap"},
      {Symptom::kReplicasDisagree, "replicas_disagree"},
      {Symptom::kAddendsMissing, "addends_missing"},
      {Symptom::kShapesDiffer, "shapes_differ"},
      {Symptom::kTypesDiffer, "types_differ"},
      {Symptom::kRowsDiffer, "rows_differ"},
      {Symptom::kNonFinite, "non_finite"},
      {Symptom::kNotEqual, "not_equal"},
      {Symptom::kIllegalFlip, "illegal_flip"},
      {Symptom::kRecompute, "recompute_differs"},
      {Symptom::kMessage, "message_differs"},
      {Symptom::kCollective, "collective_wrong"},
      {Symptom::kNorm, "norm_wrong"},
      {Symptom::kMean, "mean_wrong"},
      {Symptom::kFactor, "factor"},
      {Symptom::kSlice, "slice_out_of_bound"},
      {Symptom::kOutOfBound, "out_of_bound"},
      {Symptom::kOperator, "operator"},
      {Symptom::kSource, "other_source"},
      {Symptom::kNotExact, "not_exact"},
      {Symptom::kTooAccurate, "too_accurate"},
      {Symptom::kTooCoarse, "too_coarse"},
  });
  const auto found =
      std::ranges::find(kNames, symptom, &std::pair<Symptom, std::string_view>::first);
  return found == kNames.end() ? "" : found->second;
}

Tier tier_of(Question question) {
  return row_of(question).tier;
}

bool is_about_size(Question question) {
  return row_of(question).is_about_size;
}

bool Check::has_numbers() const {
  return row_of(question).has_numbers;
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

double Check::term(std::string_view name) const {
  const auto found = std::ranges::find(terms, name, &Term::name);
  return found == terms.end() ? 0.0 : found->value;
}

bool Check::has_term(std::string_view name) const {
  return std::ranges::find(terms, name, &Term::name) != terms.end();
}

Check failed(Question question, Symptom symptom, std::string sentence, std::vector<int> ranks) {
  Check check;
  check.question = question;
  check.holds = false;
  check.symptom = symptom;
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
    if (!other.holds && row_of(other.question).speaker == row_of(check.question).speaker) {
      return other.question == check.question;
    }
    if (!other.holds && check.question == kTooCoarse) {
      return false;
    }
  }
  return true;
}

std::vector<const Check*> speaking(const std::vector<Check>& checks) {
  std::vector<const Check*> speakers;
  for (const Check& check : checks) {
    if (speaks(checks, check)) {
      speakers.push_back(&check);
    }
  }
  return speakers;
}

}  // namespace ttrace
