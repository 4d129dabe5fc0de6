#include "analysis/checks/verdict.h"

#include "analysis/checks/codes_check.h"
#include "analysis/checks/gradient_factor.h"
#include "analysis/checks/routing_check.h"
#include "analysis/checks/slices.h"
#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"
#include "trace/sums/statistics.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

namespace ttrace {
namespace {

std::vector<int> holders(std::span<const Shard> shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    ranks.push_back(shard.rank);
  }
  return ranks;
}

std::vector<int> holders_of_nonfinite(std::span<const Shard> shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    if (shard.record->nonfinite > 0) {
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

// Of the records: merging widens partial sums to f64.
ElementType storage_type(std::span<const Shard> shards) {
  return shards.front().record->type;
}

TensorVerdict verdict_for(const Match& match) {
  TensorVerdict verdict;
  verdict.id = match.id;
  verdict.order = match.order;
  verdict.ranks = holders(match.candidate);
  return verdict;
}

// Of a tensor that is not judged.
void mark_incomplete(TensorVerdict& verdict) {
  verdict.status = Status::kIncomplete;
  verdict.symptom = Symptom::kNone;
  verdict.cause = "not all of it was written before the step was interrupted";
}

bool is_part_missing(MergeDefect defect) {
  return defect == MergeDefect::kGap || defect == MergeDefect::kAddendsMissing;
}

// Takes out what an interrupted step explains; returns whether there was any.
bool drop_part_missing(std::vector<Observation>& observations) {
  return std::erase_if(observations, [](const Observation& observation) {
           return observation.symptom == Symptom::kGap ||
                  observation.symptom == Symptom::kAddendsMissing;
         }) > 0;
}

// The reference is trusted: where it contradicts itself there is nothing to compare with. In an
// `interrupted` step parts may lack.
MergeResult merge_reference(const Match& match, bool interrupted) {
  MergeResult result = merge(match.reference);
  if (interrupted) {
    std::erase_if(result.findings,
                  [](const MergeFinding& finding) { return is_part_missing(finding.defect); });
  }
  if (!result.findings.empty()) {
    TTRACE_THROW(UsageError,
                 "the reference is broken at ",
                 to_string(match.id),
                 ": ",
                 result.findings.front().message,
                 "; run the reference on one device, or correct its annotations");
  }
  return result;
}

MergeResult merge_candidate(std::span<const Shard> shards, std::vector<Observation>& observations) {
  MergeResult result = merge(shards);
  for (const MergeFinding& finding : result.findings) {
    observations.push_back({symptom_of(finding.defect), finding.message, finding.ranks});
  }
  return result;
}

void compare_types(ElementType expected,
                   ElementType found,
                   const std::string& where,
                   std::vector<Observation>& observations) {
  if (expected != found) {
    observations.push_back({Symptom::kTypesDiffer,
                            "element type " + std::string(name_of(found)) + ", " +
                                std::string(name_of(expected)) + " in the " + where,
                            {}});
  }
}

// Whether the two can be laid side by side.
bool compare_shapes(const MergeResult& expected,
                    const MergeResult& found,
                    const std::string& where,
                    std::vector<Observation>& observations) {
  if (!found.has_tensor()) {
    return false;  // the merge findings say why
  }
  if (expected.shape != found.shape) {
    observations.push_back({Symptom::kShapesDiffer,
                            "logical shape " + shape_text(found.shape) + ", " +
                                shape_text(expected.shape) + " in the " + where,
                            {}});
    return false;
  }
  if (expected.held && found.held && expected.held->dim != found.held->dim) {
    observations.push_back({Symptom::kShapesDiffer,
                            "rows lie along dimension " + std::to_string(found.held->dim) +
                                ", along " + std::to_string(expected.held->dim) + " in the " +
                                where,
                            {}});
    return false;
  }
  return true;
}

// Of a sparse dimension; a side without one holds all rows.
IndexSet rows_of(const MergeResult& side, std::size_t dim) {
  return side.held ? side.held->rows : IndexSet{{0, side.shape[dim]}};
}

// "4 rows (3+17:20) held by the candidate alone", or nothing.
std::string rows_text(const IndexSet& rows, const std::string& holder) {
  if (rows.empty()) {
    return "";
  }
  return counted(size_of(rows), "row", "rows") + " (" + to_string(rows) + ") held by the " +
         holder + " alone";
}

// What remains to be compared are the rows that both hold. `where` and `what` name the two sides.
// Requires: comparable shapes.
void compare_rows(MergeResult& expected,
                  MergeResult& found,
                  const std::string& where,
                  const std::string& what,
                  std::vector<Observation>& observations) {
  if (expected.held == found.held) {
    return;
  }
  const std::size_t dim = expected.held ? expected.held->dim : found.held->dim;
  const IndexSet in_expected = rows_of(expected, dim);
  const IndexSet in_found = rows_of(found, dim);
  const std::string expected_only = rows_text(difference(in_expected, in_found), where);
  const std::string found_only = rows_text(difference(in_found, in_expected), what);
  if (!expected_only.empty() || !found_only.empty()) {
    observations.push_back({Symptom::kRowsDiffer,
                            "dimension " + std::to_string(dim) + " has " + expected_only +
                                (expected_only.empty() || found_only.empty() ? "" : " and ") +
                                found_only,
                            {}});
  }
  keep_common_rows(expected, found);
}

Statistics statistics_of(const MergeResult& reference, const MergeResult& candidate) {
  return compare(reference.type,
                 reference.bytes.data(),
                 candidate.type,
                 candidate.bytes.data(),
                 element_count(reference.shape));
}

Comparison comparison_of(const Statistics& statistics,
                         const Bound& bound,
                         std::span<const std::int64_t> shape) {
  Comparison comparison;
  comparison.error = statistics.error_norm();
  comparison.reference_norm = statistics.reference_norm();
  comparison.candidate_norm = std::sqrt(statistics.candidate_squared);
  comparison.relative_error = statistics.relative_error();
  comparison.bound = bound.value;
  comparison.noise_terms = bound.noise_terms;
  comparison.default_terms = bound.default_terms;
  if (bound.value > 0.0) {
    comparison.detectable = comparison.reference_norm > 0.0
                                ? bound.value / comparison.reference_norm
                                : std::numeric_limits<double>::infinity();
  }
  if (bound.scale) {
    comparison.q = *bound.scale > 0.0      ? comparison.error / *bound.scale
                   : comparison.error == 0 ? 0.0
                                           : std::numeric_limits<double>::infinity();
  }
  comparison.factor = statistics.factor();
  comparison.max_difference = statistics.max_difference;
  if (statistics.max_index >= 0) {
    comparison.max_index = unravel(statistics.max_index, shape);
  }
  comparison.different = statistics.different;
  comparison.elements = statistics.count;
  return comparison;
}

// Structural observations come first and decide the tier; the sentence tells all of them.
void conclude(TensorVerdict& verdict, const std::vector<Observation>& observations) {
  if (observations.empty()) {
    return;
  }
  verdict.status = Status::kDiverged;
  verdict.symptom = observations.front().symptom;
  if (!observations.front().ranks.empty()) {
    verdict.ranks = observations.front().ranks;
  }
  for (const Observation& observation : observations) {
    verdict.cause += (verdict.cause.empty() ? "" : "; also: ") + observation.sentence;
  }
}

// Whether the observation is about the size of the error only.
bool is_size(const Observation& observation) {
  return observation.symptom == Symptom::kNotEqual || observation.symptom == Symptom::kFactor ||
         observation.symptom == Symptom::kOutOfBound || observation.symptom == Symptom::kOperator ||
         observation.symptom == Symptom::kSlice || observation.symptom == Symptom::kIllegalFlip ||
         observation.symptom == Symptom::kTooAccurate ||
         observation.symptom == Symptom::kTooCoarse || observation.symptom == Symptom::kNotExact;
}

// Choices of experts, as numbers that can be compared.
bool is_choices(const TensorId& id, const MergeResult& reference, const MergeResult& candidate) {
  return id.kind == Kind::kRouting && id.slot == kChoicesSlot &&
         reference.type == ElementType::kI64 && candidate.type == ElementType::kI64;
}

// As doubles; empty where there is no tensor of `tokens` elements.
std::vector<double> margins_of(std::span<const Shard> shards, std::size_t tokens) {
  if (shards.empty()) {
    return {};
  }
  const MergeResult merged = merge(shards);
  const auto count = static_cast<std::size_t>(element_count(merged.shape));
  if (!merged.has_tensor() || count != tokens) {
    return {};
  }
  std::vector<double> margins(count);
  to_double(merged.type, merged.bytes.data(), static_cast<std::int64_t>(count), margins.data());
  return margins;
}

// Of an operand's values; nothing where a side lacks the scale, or has no codes.
std::optional<CodesComparison> codes_of(const MergeResult& reference,
                                        const MergeResult& candidate,
                                        const Match& scale) {
  if (scale.reference.empty() || scale.candidate.empty()) {
    return std::nullopt;
  }
  const MergeResult of_reference = merge(scale.reference);
  const MergeResult of_candidate = merge(scale.candidate);
  return compare_codes({reference, of_reference}, {candidate, of_candidate});
}

// Whether a tensor is a multiple of the reference's that rounding notices.
bool rescaled(const Match& match) {
  return !is_power_of_two(factor_between(match.reference, match.candidate)) &&
         !are_powers_of_two(match.reference, match.candidate);
}

void observe_nonfinite(const Match& match,
                       const Statistics& statistics,
                       const TensorPair& pair,
                       std::vector<Observation>& observations) {
  if (statistics.reference_nonfinite > 0 || statistics.candidate_nonfinite > 0) {
    if (auto observation = nonfinite_difference(pair)) {
      observation->ranks = holders_of_nonfinite(match.candidate);
      observations.push_back(*std::move(observation));
    }
  }
}

// Under a tolerance that the user asked for, element by element.
void compare_with(const Tolerance& tolerance,
                  const Match& match,
                  const MergeResult& reference,
                  const MergeResult& candidate,
                  TensorVerdict& verdict,
                  std::vector<Observation>& observations) {
  const Statistics statistics = statistics_of(reference, candidate);
  const TensorPair pair = pair_of(reference, candidate);
  const ToleranceCheck check = check_tolerance(tolerance, pair);
  verdict.origin = BoundOrigin::kAsked;
  verdict.bound_source = to_string(tolerance) + " (asked for)";
  Bound bound;
  bound.value = check.norm;
  verdict.comparison = comparison_of(statistics, bound, reference.shape);
  verdict.comparison->asked = check;
  observe_nonfinite(match, statistics, pair, observations);
  if (check.beyond > 0) {
    observations.push_back(beyond_tolerance(check, reference.shape));
  }
}

// Whether the shards, merged, are bit for bit what the first forward made on the same side.
struct RecomputeCheck {
  std::optional<Comparison> comparison;
  std::vector<Observation> observations;
};

RecomputeCheck check_recompute(std::span<const Shard> first, std::span<const Shard> again) {
  constexpr auto kWhere = "first forward";
  RecomputeCheck check;
  MergeResult value = merge_candidate(again, check.observations);
  MergeResult expected = merge(first);  // its own verdict tells its findings
  compare_types(storage_type(first), storage_type(again), kWhere, check.observations);
  if (!expected.has_tensor() || !compare_shapes(expected, value, kWhere, check.observations)) {
    return check;
  }
  compare_rows(expected, value, kWhere, "recomputed value", check.observations);
  const Statistics statistics = statistics_of(expected, value);
  check.comparison = comparison_of(statistics, Bound{}, expected.shape);
  if (statistics.different > 0) {
    check.observations.push_back(
        {Symptom::kRecompute,
         std::to_string(statistics.different) + " of " +
             counted(statistics.count, "element", "elements") +
             " of the recomputed value differ from its own first forward, error " +
             short_number(statistics.relative_error()) + " of that one's norm",
         {}});
  }
  return check;
}

}  // namespace

TensorVerdict Judge::missing(const Match& match) const {
  TensorVerdict verdict = verdict_for(match);
  verdict.tier = Tier::kT0;
  verdict.bound_source = "exact (present on both sides)";
  const bool in_candidate = match.candidate.empty();
  if ((in_candidate ? interruptions_.candidate : interruptions_.reference)
          .contains(match.id.step)) {
    mark_incomplete(verdict);
    return verdict;
  }
  verdict.symptom = Symptom::kMissing;
  if (in_candidate) {
    verdict.status = Status::kMissingInCandidate;
    verdict.cause = "no rank of the candidate recorded it";
  } else {
    verdict.status = Status::kMissingInReference;
    verdict.cause =
        "the reference did not record it, the candidate did on " + ranks_text(verdict.ranks);
  }
  return verdict;
}

std::size_t Judge::count() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < matches_.size(); ++i) {
    count += judges(i) ? 1 : 0;
  }
  return count;
}

TensorVerdict Judge::judge(std::size_t index, const std::optional<Tolerance>& tolerance) const {
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

TensorVerdict Judge::judge_recomputed(const Match& match) const {
  const Match& first = matches_[*match.first_forward];
  const bool on_candidate = match.reference.empty();
  RecomputeCheck check = on_candidate ? check_recompute(first.candidate, match.candidate)
                                      : check_recompute(first.reference, match.reference);
  const bool part_missing = (on_candidate ? interruptions_.candidate : interruptions_.reference)
                                .contains(match.id.step) &&
                            drop_part_missing(check.observations);
  if (!on_candidate && !check.observations.empty()) {
    TTRACE_THROW(UsageError,
                 "the reference is broken at ",
                 to_string(match.id),
                 ": ",
                 check.observations.front().sentence,
                 "; make the reference deterministic");
  }
  TensorVerdict verdict = verdict_for(match);
  verdict.tier = Tier::kT0;
  verdict.bound_source = "exact (its own first forward)";
  verdict.comparison = check.comparison;
  if (part_missing && check.observations.empty()) {
    mark_incomplete(verdict);
  }
  conclude(verdict, check.observations);
  return verdict;
}

namespace {

// Noise alone makes such a tensor: the gradient of a key's bias, say, is zero in exact arithmetic.
// What its operators leave of it follows from how their roundings cancel, of which one native pass
// is no measure.
bool is_nothing_but_noise(const Comparison& comparison) {
  return comparison.q && comparison.error > 0.0 &&
         comparison.error >= *comparison.q * comparison.reference_norm;
}

}  // namespace

TensorVerdict Judge::judge_pair(const Match& match,
                                const std::optional<Tolerance>& tolerance) const {
  std::vector<Observation> observations;
  MergeResult reference = merge_reference(match, interruptions_.reference.contains(match.id.step));
  MergeResult candidate = merge_candidate(match.candidate, observations);
  const bool candidate_part_missing =
      interruptions_.candidate.contains(match.id.step) && drop_part_missing(observations);
  if (same_precision_) {
    compare_types(
        storage_type(match.reference), storage_type(match.candidate), "reference", observations);
  }
  if (match.first_forward && !matches_[*match.first_forward].candidate.empty()) {
    const std::vector<Shard>& first = matches_[*match.first_forward].candidate;
    for (Observation& observation : check_recompute(first, match.candidate).observations) {
      if (observation.symptom == Symptom::kRecompute ||
          observation.symptom == Symptom::kRowsDiffer) {
        observations.push_back(std::move(observation));
      }
    }
  }

  TensorVerdict verdict = verdict_for(match);
  verdict.bound_source = "exact (structure)";
  verdict.tensor_class = class_of(match.id, reference.shape.size());
  if (!reference.has_tensor() || candidate_part_missing) {
    mark_incomplete(verdict);
  } else if (compare_shapes(reference, candidate, "reference", observations)) {
    compare_rows(reference, candidate, "reference", "candidate", observations);
    if (is_choices(match.id, reference, candidate)) {
      compare_routing(match, reference, candidate, verdict, observations);
    } else if (others_.exact != nullptr &&
               !is_exact(match.id,
                         coarser(storage_type(match.reference), storage_type(match.candidate)))) {
      compare_exactly(match, reference, candidate, verdict, observations);
    } else if (tolerance) {
      compare_with(*tolerance, match, reference, candidate, verdict, observations);
    } else {
      if (are_powers_of_two(match.reference, match.candidate)) {
        take_out_factor(factor_between(match.reference, match.candidate), reference, candidate);
      }
      compare_values(match, reference, candidate, verdict, observations);
      if (others_.operators != nullptr && !are_powers_of_two(match.reference, match.candidate)) {
        verdict.residual =
            others_.operators->compare(match, candidate, rescaled(match), heads_.size_in(match.id));
        if (verdict.residual && is_nothing_but_noise(*verdict.comparison)) {
          verdict.residual->leave_unjudged();
        }
      }
    }
  }
  const bool operator_wrong = verdict.residual && !verdict.residual->is_within();
  if (operator_wrong) {
    observations.insert(observations.begin(), operator_error(*verdict.residual));
    verdict.told = verdict.residual->told;
  }
  if (verdict.comparison && match.scale) {
    compare_operand(match, reference, candidate, verdict, observations);
  } else if (verdict.comparison && match.operand && !tolerance) {
    compare_scale(match, verdict, observations);
  }
  const bool only_golden = observations.empty();
  if (others_.golden != nullptr && verdict.comparison && !tolerance &&
      verdict.origin != BoundOrigin::kExact) {
    compare_with_golden(match, reference, candidate, verdict, observations);
  }
  // An error beyond a bound above zero is the only observation of T2.
  const bool structural = std::any_of(
      observations.begin(), observations.end(), [](const Observation& o) { return !is_size(o); });
  if (structural) {
    verdict.tier = Tier::kT0;
  } else if (verdict.tier != Tier::kT3) {  // which compare_exactly() has set
    const bool exact = verdict.origin == BoundOrigin::kExact;
    const bool golden_alone = only_golden && !observations.empty();
    verdict.tier = exact            ? Tier::kT0
                   : operator_wrong ? Tier::kT1
                   : golden_alone   ? Tier::kGolden
                                    : Tier::kT2;
  }
  conclude(verdict, observations);
  return verdict;
}

void Judge::compare_with_golden(const Match& match,
                                const MergeResult& reference,
                                const MergeResult& candidate,
                                TensorVerdict& verdict,
                                std::vector<Observation>& observations) const {
  verdict.golden = others_.golden->compare(match, reference, candidate);
  // What is wrong in another way need not be told to be inaccurate.
  if (verdict.golden && (verdict.golden->is_too_accurate() ||
                         (observations.empty() && verdict.golden->is_too_coarse()))) {
    observations.push_back(golden_error(*verdict.golden, others_.golden->precision()));
  }
}

void Judge::compare_exactly(const Match& match,
                            const MergeResult& reference,
                            const MergeResult& candidate,
                            TensorVerdict& verdict,
                            std::vector<Observation>& observations) const {
  const Statistics statistics = statistics_of(reference, candidate);
  const bool must_be_equal = others_.exact->must_be_equal(match.id, reference);
  Bound bound;
  bound.value = must_be_equal ? 0.0 : std::numeric_limits<double>::infinity();
  verdict.origin = BoundOrigin::kExact;
  verdict.bound_source = must_be_equal ? "exact (small integers add up exactly)"
                                       : "none (the reference itself rounds here)";
  verdict.comparison = comparison_of(statistics, bound, reference.shape);
  observe_nonfinite(match, statistics, pair_of(reference, candidate), observations);
  if (!must_be_equal) {
    verdict.status = Status::kNotJudged;
    return;
  }
  verdict.tier = Tier::kT3;
  if (statistics.max_difference > 0.0) {
    observations.push_back(not_exact(match.id, *verdict.comparison));
  }
}

void Judge::compare_operand(const Match& match,
                            const MergeResult& reference,
                            const MergeResult& candidate,
                            TensorVerdict& verdict,
                            std::vector<Observation>& observations) const {
  verdict.codes = codes_of(reference, candidate, matches_[*match.scale]);
  if (verdict.codes && verdict.codes->reference.format != verdict.codes->candidate.format) {
    observations.push_back(formats_differ(*verdict.codes));
  }
}

void Judge::compare_scale(const Match& match,
                          TensorVerdict& verdict,
                          std::vector<Observation>& observations) const {
  const Match& operand = matches_[*match.operand];
  if (verdict.comparison->different == 0 || operand.reference.empty() ||
      operand.candidate.empty()) {
    return;
  }
  verdict.codes = codes_of(merge(operand.reference), merge(operand.candidate), match);
  if (!observations.empty() && std::ranges::all_of(observations, is_size) && verdict.codes &&
      keep_codes(*verdict.codes) && judge_pair(operand, {}).status == Status::kWithin) {
    verdict.codes->harmless = true;
    observations.clear();
  }
}

void Judge::compare_routing(const Match& match,
                            const MergeResult& reference,
                            const MergeResult& candidate,
                            TensorVerdict& verdict,
                            std::vector<Observation>& observations) const {
  Margins margins;
  TensorId id = match.id;
  id.slot = kMarginsSlot;
  const std::int64_t choices = reference.shape.empty() ? 1 : reference.shape.back();
  const std::int64_t tokens = choices == 0 ? 0 : element_count(reference.shape) / choices;
  if (match.margins) {
    const Match& both = matches_[*match.margins];
    margins.reference = margins_of(both.reference, static_cast<std::size_t>(tokens));
    margins.candidate = margins_of(both.candidate, static_cast<std::size_t>(tokens));
  }
  const auto largest = std::max_element(margins.reference.begin(), margins.reference.end());
  const Bound bound =
      bounds_.of_flips(id, tokens, largest == margins.reference.end() ? 0.0 : *largest);
  verdict.origin = bound.origin;
  verdict.bound_source = bound.source;
  verdict.flips = compare_choices(reference, candidate, margins, bound);
  if (auto observation = illegal_flips(*verdict.flips, reference.shape)) {
    observations.push_back(*std::move(observation));
  }
}

void Judge::compare_values(const Match& match,
                           const MergeResult& reference,
                           const MergeResult& candidate,
                           TensorVerdict& verdict,
                           std::vector<Observation>& observations) const {
  const Statistics statistics = statistics_of(reference, candidate);
  const Judged judged{match.id,
                      reference.shape.size(),
                      coarser(storage_type(match.reference), storage_type(match.candidate)),
                      statistics,
                      rescaled(match)};
  const Bound bound = bounds_.of(judged);
  verdict.origin = bound.origin;
  verdict.bound_source = bound.source;
  const TensorPair pair = pair_of(reference, candidate);
  verdict.comparison = comparison_of(statistics, bound, reference.shape);
  Comparison& comparison = *verdict.comparison;
  if (bound.origin == BoundOrigin::kNoise && bound.value > 0.0) {
    compare_parts(match, judged, pair, comparison);
  }
  observe_nonfinite(match, statistics, pair, observations);
  // Squares of tiny differences may vanish: equality is judged by the largest one.
  const bool beyond =
      bound.value == 0.0 ? comparison.max_difference > 0.0 : comparison.error > bound.value;
  if (beyond) {
    observations.push_back(beyond_bound(comparison, bound));
  } else if (comparison.slice && comparison.slice->beyond()) {
    observations.push_back(beyond_slice_bound(*comparison.slice));
  } else if (comparison.factor_in_noise && comparison.factor_in_noise->beyond()) {
    observations.push_back(beyond_factor_bound(*comparison.factor_in_noise));
  }
}

void Judge::compare_parts(const Match& match,
                          const Judged& judged,
                          const TensorPair& pair,
                          Comparison& comparison) const {
  const std::optional<SliceBound> bound = bounds_.of_slices(judged);
  if (judged.statistics.difference_squared == 0.0 || match.id.kind == Kind::kRouting) {
    return;
  }
  const Slices slices = sum_slices(pair);
  if (bound) {
    comparison.slice =
        worst_slice(pair, slices, {*bound, match.candidate, heads_.size_in(match.id)});
  }
  if (slices.all.reference_squared > 0.0) {
    comparison.factor_in_noise =
        bounds_.of_factor(judged, slices.all.along_reference / slices.all.reference_squared);
  }
}

}  // namespace ttrace
