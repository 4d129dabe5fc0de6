#include "analysis/checks/judge.h"

#include "analysis/align/values.h"
#include "analysis/checks/cast_check.h"
#include "analysis/checks/codes_check.h"
#include "analysis/checks/gradient_factor.h"
#include "analysis/checks/recompute_check.h"
#include "analysis/checks/routing_check.h"
#include "analysis/checks/sample_check.h"
#include "analysis/checks/sketch_parts.h"
#include "analysis/checks/structure.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/base/random.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/merge/merge.h"
#include "trace/merge/routing.h"
#include "trace/sums/statistics.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace ttrace {
namespace {

TensorVerdict verdict_for(const Match& match) {
  TensorVerdict verdict;
  verdict.id = match.id;
  verdict.order = match.order;
  verdict.holders = ranks_of(match.candidate);
  verdict.is_in_reference = !match.reference.empty();
  return verdict;
}

void add_all(std::vector<Check> checks, TensorVerdict& verdict) {
  for (Check& check : checks) {
    verdict.add(std::move(check));
  }
}

void excuse_interruption(TensorVerdict& verdict) {
  verdict.excuse(Excuse::kInterrupted, "the step was interrupted before all of it was written");
}

// Takes out what an interrupted step explains; returns whether there was any.
bool drop_part_missing(std::vector<Check>& checks) {
  return std::erase_if(checks, is_part_missing) > 0;
}

// The values as doubles; empty if there is no tensor of `tokens` elements.
std::vector<double> margins_of(std::span<const Shard> shards, std::size_t tokens) {
  if (shards.empty()) {
    return {};
  }
  const MergeResult merged = merge(shards);
  const auto count = static_cast<std::size_t>(element_count(merged.shape));
  return merged.has_tensor() && count == tokens ? values_of(merged).data : std::vector<double>();
}

// Such a tensor, as the gradient of a key's bias, is zero in exact arithmetic. One native pass does
// not measure how its operators' roundings cancel.
bool is_nothing_but_noise(const Comparison& comparison, const Bound& bound) {
  return bound.scale && *bound.scale > 0.0 && comparison.error > 0.0 &&
         *bound.scale >= comparison.reference_norm;
}

}  // namespace

// Compares both sides.
struct Judge::Subject {
  const Match& match;
  const std::optional<Tolerance>& tolerance;
  MergeResult reference;
  MergeResult candidate;                // in the order of the reference's choices of experts
  std::optional<MergeResult> own = {};  // in the order of its own choices, where that is another
  std::optional<SketchPair> sketches = {};  // where one side kept no more
  bool is_choices = false;
  bool is_dyadic = false;
  std::int64_t reordered = 0;  // tokens whose order that is
  Statistics statistics = {};
  Slices slices = {};  // where bounds of parts are known
  Comparison comparison = {};
  Bound bound = {};
  bool rescaled = false;
  bool are_powers_of_two = false;

  // Otherwise one side kept no more than a sketch.
  [[nodiscard]] bool have_elements() const { return !reference.sketch && !candidate.sketch; }
  [[nodiscard]] bool has_bound() const { return !is_choices && !is_dyadic && !tolerance; }
  [[nodiscard]] ElementType type() const {
    return coarser(storage_type(match.reference), storage_type(match.candidate));
  }
  [[nodiscard]] Judged judged() const {
    return {match.id, reference.shape.size(), type(), statistics, rescaled};
  }
};

TensorVerdict Judge::judge(std::size_t index, const std::optional<Tolerance>& tolerance) const {
  const Match& match = matches_[index];
  const SampleAlignment* const samples = options_.samples;
  const bool has_place = !lacks_place(samples, match);
  TensorVerdict verdict = has_place ? judge_sides(index, tolerance) : verdict_for(match);
  if (!has_place) {
    verdict.add(passed(Question::kPresence, "none (its samples were not brought together)"));
    verdict.excuse(Excuse::kUnaligned);
  }
  if (samples != nullptr) {
    add_all(sample_checks(*samples, match.id), verdict);
  }
  verdict.is_given = is_given(match.id);
  return verdict;
}

TensorVerdict Judge::judge_sides(std::size_t index,
                                 const std::optional<Tolerance>& tolerance) const {
  const Match& match = matches_[index];
  if (SelfCheck::concerns(match.id.kind)) {
    return self_check_.judge(index);
  }
  if (!match.reference.empty() && !match.candidate.empty()) {
    return judge_pair(match, tolerance);
  }
  const bool on_candidate = match.reference.empty();
  if (match.first_forward) {
    const Match& first = matches_[*match.first_forward];
    if (!(on_candidate ? first.candidate : first.reference).empty()) {
      return judge_recomputed(match);
    }
  }
  return missing(match);
}

TensorVerdict Judge::missing(const Match& match) const {
  TensorVerdict verdict = verdict_for(match);
  constexpr auto kSource = "exact (present on both sides)";
  const bool in_candidate = match.candidate.empty();
  const auto& interrupted = options_.interruptions;
  if ((in_candidate ? interrupted.candidate : interrupted.reference).contains(match.id.step)) {
    verdict.add(passed(Question::kPresence, kSource));
    excuse_interruption(verdict);
    return verdict;
  }
  Check check = failed(
      Question::kPresence,
      in_candidate ? "no rank of the candidate recorded it"
                   : fmt::format("the candidate recorded it on {}, but the reference did not",
                                 ranks_text(verdict.holders)));
  check.source = kSource;
  verdict.add(std::move(check));
  return verdict;
}

TensorVerdict Judge::judge_recomputed(const Match& match) const {
  const Match& first = matches_[*match.first_forward];
  const bool on_candidate = match.reference.empty();
  const auto& before = on_candidate ? first.candidate : first.reference;
  RecomputeResult result = check_recompute(
      before, on_candidate ? match.candidate : match.reference, bounds_.of_copies(first, before));
  const auto& interrupted = options_.interruptions;
  const bool part_missing =
      (on_candidate ? interrupted.candidate : interrupted.reference).contains(match.id.step) &&
      drop_part_missing(result.checks);
  if (!on_candidate && !result.checks.empty()) {
    TTRACE_THROW(
        UsageError,
        fmt::format("the reference contradicts itself at {}: {}; make the reference deterministic, "
                    "or let `ttrace check --self-check` measure what it does not reproduce",
                    to_string(match.id),
                    result.checks.front().sentence));
  }
  TensorVerdict verdict = verdict_for(match);
  constexpr auto kSource = "exact (its own first forward)";
  verdict.comparison = result.comparison;
  if (part_missing && result.checks.empty()) {
    excuse_interruption(verdict);
  }
  add_all(std::move(result.checks), verdict);
  if (verdict.find(Question::kRecompute) == nullptr) {
    verdict.add(passed(Question::kRecompute, kSource));
  }
  for (Check& check : verdict.checks) {
    check.source = kSource;
  }
  return verdict;
}

TensorVerdict Judge::judge_pair(const Match& match,
                                const std::optional<Tolerance>& tolerance) const {
  TensorVerdict verdict = verdict_for(match);
  const auto subject = prepare(match, tolerance, verdict);
  if (!subject) {
    return verdict;
  }
  for (const Ask ask : questions(match.id)) {
    (this->*ask)(*subject, verdict);
  }
  if (match.operand && !tolerance) {
    excuse_scale(match, verdict);
  }
  return verdict;
}

void Judge::ask_recompute(const Match& match, TensorVerdict& verdict) const {
  if (!match.first_forward || matches_[*match.first_forward].candidate.empty()) {
    return;
  }
  const Match& first = matches_[*match.first_forward];
  const double bound = bounds_.of_copies(first, first.candidate);
  for (Check& check : check_recompute(first.candidate, match.candidate, bound).checks) {
    if (check.question == Question::kRecompute || check.question == Question::kRows) {
      check.question = Question::kRecompute;
      verdict.add(std::move(check));
    }
  }
}

std::optional<Judge::Subject> Judge::prepare(const Match& match,
                                             const std::optional<Tolerance>& tolerance,
                                             TensorVerdict& verdict) const {
  const std::int64_t step = match.id.step;
  Subject subject{
      match,
      tolerance,
      merge_reference(match.id, match.reference, options_.interruptions.reference.contains(step)),
      merge(match.candidate)};
  MergeResult& reference = subject.reference;
  MergeResult& candidate = subject.candidate;
  std::vector<Check> structure =
      structure_checks(candidate, bounds_.of_copies(match, match.candidate));
  const bool part_missing =
      options_.interruptions.candidate.contains(step) && drop_part_missing(structure);
  if (structure.empty()) {
    structure.push_back(passed(Question::kStructure, "exact (structure)"));
  }
  add_all(std::move(structure), verdict);
  if (options_.same_types) {
    add_all(type_checks(match.reference, match.candidate, "reference"), verdict);
  }
  ask_recompute(match, verdict);
  verdict.tensor_class = class_of(match.id, reference.shape.size());
  if (!reference.has_values() || part_missing) {
    excuse_interruption(verdict);
    return std::nullopt;
  }
  add_all(shape_checks(reference, candidate, "reference"), verdict);
  if (!have_one_shape(reference, candidate)) {
    return std::nullopt;
  }
  add_all(row_checks(reference, candidate, "reference", "candidate"), verdict);
  subject.is_choices = is_choices(match.id) && reference.type == ElementType::kI64 &&
                       candidate.type == ElementType::kI64;
  if (subject.is_choices) {
    return subject;
  }
  subject.is_dyadic = options_.others.exact && !is_exact(match.id, subject.type());
  const bool has_grid = options_.allowances.has(Allowance::kOtherGrid);
  subject.are_powers_of_two = has_grid && are_powers_of_two(match.reference, match.candidate);
  const double factor = factor_between(match.reference, match.candidate);
  subject.rescaled = has_grid && !subject.are_powers_of_two && !is_power_of_two(factor);
  if (subject.has_bound() && subject.are_powers_of_two) {
    take_out_factor(factor, reference, candidate);
  }
  sum(subject);
  follow_choices(subject);
  subject.comparison = comparison_of(subject.statistics, reference.shape);
  subject.comparison.reordered = subject.reordered;
  if (subject.comparison.nonfinite > 0 && subject.have_elements()) {
    subject.comparison.nan = nan_on_both(pair_of(reference, candidate));
  }
  verdict.comparison = subject.comparison;
  if (subject.has_bound()) {
    subject.bound = bounds_.of(subject.judged());
  }
  return subject;
}

void Judge::sum(Subject& subject) const {
  if (!subject.have_elements()) {
    subject.sketches.emplace(
        SketchPair{sketch_of(subject.reference), sketch_of(subject.candidate)});
    Moments moments = moments_of(subject.sketches->reference, subject.sketches->candidate);
    subject.statistics = std::move(moments.all);
    subject.slices = std::move(moments.slices);
    return;
  }
  const SummedPair pair = summed(subject.reference,
                                 subject.candidate,
                                 subject.has_bound() && bounds_.know_parts(subject.match.id));
  Moments moments = std::move(moments_of(subject.reference.shape, std::span(&pair, 1)).front());
  subject.statistics = std::move(moments.all);
  subject.slices = std::move(moments.slices);
}

// The forced passes made the candidate's choices, in its order; the reference did not.
void Judge::follow_choices(Subject& subject) const {
  if (!subject.match.choices || subject.statistics.different == 0 || !subject.have_elements()) {
    return;
  }
  auto ordered = in_order_of_reference(matches_[*subject.match.choices], subject.candidate);
  if (!ordered) {
    return;
  }
  // Another tensor may have the same shape, but not the order.
  if (statistics_of(subject.reference, ordered->tensor).relative_error() <
      subject.statistics.relative_error()) {
    subject.own = std::exchange(subject.candidate, std::move(ordered->tensor));
    sum(subject);
    subject.reordered = ordered->tokens;
  }
}

std::vector<Judge::Ask> Judge::questions(const TensorId& id) const {
  std::vector<Ask> questions = {&Judge::ask_routing,
                                &Judge::ask_finite,
                                &Judge::ask_cast,
                                &Judge::ask_dyadic,
                                &Judge::ask_tolerance,
                                &Judge::ask_whole,
                                &Judge::ask_parts,
                                &Judge::ask_operators,
                                &Judge::ask_golden,
                                &Judge::ask_codes};
  if (options_.shuffle > 0) {
    shuffle(questions, options_.shuffle + std::hash<std::string>()(to_string(id)));
  }
  return questions;
}

void Judge::ask_finite(const Subject& subject, TensorVerdict& verdict) const {
  if (!subject.have_elements()) {
    add_all(finite_checks(*subject.sketches, subject.match), verdict);
  } else if (!subject.is_choices) {
    add_all(finite_checks(
                pair_of(subject.reference, subject.candidate), subject.statistics, subject.match),
            verdict);
  }
}

void Judge::ask_cast(const Subject& subject, TensorVerdict& verdict) const {
  const auto master = subject.match.master;
  if (auto check = master ? cast_check(subject.match, matches_[*master]) : std::nullopt) {
    verdict.add(*std::move(check));
  }
}

void Judge::ask_dyadic(const Subject& subject, TensorVerdict& verdict) const {
  if (!subject.is_dyadic) {
    return;
  }
  if (options_.others.exact->must_be_equal(subject.match.id, subject.reference)) {
    verdict.add(dyadic_check(subject.match.id, subject.comparison));
  } else {
    verdict.excuse(Excuse::kRounds);
  }
}

void Judge::ask_tolerance(const Subject& subject, TensorVerdict& verdict) const {
  if (subject.tolerance && !subject.is_choices && !subject.is_dyadic) {
    TTRACE_CHECK(subject.have_elements(),
                 UsageError,
                 "a tolerance compares elements, but of ",
                 to_string(subject.match.id),
                 " a sketch was kept; leave --tolerance out, or trace with TTRACE_KEEP=bytes");
    verdict.add(tolerance_check(
        *subject.tolerance, pair_of(subject.reference, subject.candidate), subject.comparison));
  }
}

void Judge::ask_whole(const Subject& subject, TensorVerdict& verdict) const {
  if (subject.has_bound()) {
    verdict.add(whole_check(subject.comparison, subject.bound));
  }
}

void Judge::ask_parts(const Subject& subject, TensorVerdict& verdict) const {
  if (!subject.has_bound() || subject.bound.origin != BoundOrigin::kNoise ||
      !(subject.bound.value > 0.0)) {
    return;
  }
  const std::int64_t head = options_.heads.size_in(subject.match.id);
  if (subject.sketches) {
    add_all(part_checks(bounds_,
                        subject.judged(),
                        *subject.sketches,
                        subject.slices,
                        subject.match.candidate,
                        head,
                        subject.reference.shape),
            verdict);
  } else {
    add_all(part_checks(bounds_,
                        subject.judged(),
                        pair_of(subject.reference, subject.candidate),
                        subject.slices,
                        subject.match.candidate,
                        head),
            verdict);
  }
}

void Judge::ask_operators(const Subject& subject, TensorVerdict& verdict) const {
  if (!subject.has_bound() || !subject.have_elements() || !options_.others.operators ||
      subject.are_powers_of_two || is_given(subject.match.id) ||
      (options_.samples != nullptr && sums_other_samples(*options_.samples, subject.match.id))) {
    return;
  }
  auto residual =
      options_.others.operators->compare(subject.match,
                                         subject.own ? *subject.own : subject.candidate,
                                         bounds_.spread_against_rounding(subject.judged()),
                                         subject.rescaled,
                                         options_.heads.size_in(subject.match.id));
  if (!residual) {
    return;
  }
  if (options_.allowances.has(Allowance::kNothingButNoise) &&
      is_nothing_but_noise(subject.comparison, subject.bound)) {
    residual->leave_unjudged();
  }
  add_all(checks_of(*residual, subject.comparison.candidate_norm), verdict);
}

void Judge::ask_golden(const Subject& subject, TensorVerdict& verdict) const {
  if (options_.others.golden && subject.has_bound() &&
      subject.bound.origin != BoundOrigin::kExact) {
    add_all(options_.others.golden->compare(subject.match,
                                            subject.reference,
                                            subject.candidate,
                                            bounds_.spread_against_noise(subject.judged())),
            verdict);
  }
}

void Judge::ask_routing(const Subject& subject, TensorVerdict& verdict) const {
  if (!subject.is_choices) {
    return;
  }
  const std::vector<std::int64_t>& shape = subject.reference.shape;
  const std::int64_t choices = shape.empty() ? 1 : shape.back();
  const std::int64_t tokens = choices == 0 ? 0 : element_count(shape) / choices;
  Margins margins;
  if (subject.match.margins) {
    const Match& both = matches_[*subject.match.margins];
    margins.reference = margins_of(both.reference, static_cast<std::size_t>(tokens));
    margins.candidate = margins_of(both.candidate, static_cast<std::size_t>(tokens));
  }
  const auto largest = std::max_element(margins.reference.begin(), margins.reference.end());
  TensorId id = subject.match.id;
  id.slot = kMarginsSlot;
  const Bound bound =
      bounds_.of_flips(id, tokens, largest == margins.reference.end() ? 0.0 : *largest);
  verdict.add(routing_check(subject.reference, subject.candidate, margins, bound));
}

// An operand whose scale was recorded, or a scale that differs.
void Judge::ask_codes(const Subject& subject, TensorVerdict& verdict) const {
  const Match& match = subject.match;
  if (subject.is_choices) {
    return;
  }
  if (match.scale) {
    verdict.codes = codes_of(subject.reference, subject.candidate, matches_[*match.scale]);
    if (verdict.codes) {
      verdict.add(format_check(*verdict.codes));
    }
  } else if (match.operand && !subject.tolerance && subject.comparison.different > 0) {
    const Match& operand = matches_[*match.operand];
    if (!operand.reference.empty() && !operand.candidate.empty()) {
      verdict.codes = codes_of(merge(operand.reference), merge(operand.candidate), match);
    }
  }
}

void Judge::excuse_scale(const Match& match, TensorVerdict& verdict) const {
  const auto fails_in_structure = [](const Check& check) {
    return !check.holds && !is_about_size(check.question);
  };
  const bool differs = std::ranges::any_of(verdict.checks, std::logical_not<>(), &Check::holds);
  if (differs && std::ranges::none_of(verdict.checks, fails_in_structure) && verdict.codes &&
      options_.allowances.has(Allowance::kHarmlessScales) && keep_codes(*verdict.codes) &&
      judge_pair(matches_[*match.operand], {}).status() == Status::kWithin) {
    verdict.excuse(Excuse::kHarmlessScale);
  }
}

}  // namespace ttrace
