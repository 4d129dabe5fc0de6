// Scales of FP8 operands: which magnitude a scale was made from, and what another one does to the
// numbers it quantises. scale = amax / largest number of the format: 448 (E4M3) or 57344 (E5M2).
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/codes.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::array kFp8Formats = {ElementType::kE4M3, ElementType::kE5M2};

// A magnitude that a scale may have been made from.
struct Amax {
  double value = 0.0;
  std::string name;
};

bool is_near(double left, double right) {
  constexpr double kSame = 1e-5;  // scales are f32
  return std::abs(left - right) <= kSame * std::abs(right);
}

void add_magnitudes(const Values& values, const std::string& name, std::vector<Amax>& list) {
  if (!values.data.empty()) {
    const auto [least, most] = std::ranges::minmax(values.data);
    list.push_back({std::max(std::abs(least), std::abs(most)), "the largest magnitude of " + name});
    list.push_back({most, "the largest signed value of " + name});
  }
}

// With the history of the same operand: its entries and the largest of them.
void add_history(const Evidence& evidence, WhichRun run, std::vector<Amax>& list) {
  const auto history = evidence.value(evidence.with_kind(Kind::kAmaxHistory), run);
  if (!history || history->data.empty()) {
    return;
  }
  list.push_back({std::ranges::max(history->data), "the largest entry of the amax history"});
  for (std::size_t i = 0; i < history->data.size(); ++i) {
    if (history->data[i] > 0.0) {
      list.push_back({history->data[i], fmt::format("entry {} of the amax history", i)});
    }
  }
}

// What the scale's operand may be, by its slot: an input of the module, its weight, or a gradient
// that was recorded before the scale.
std::vector<const Match*> operands_of(const Evidence& evidence) {
  const TensorId& id = evidence.finding().id;
  if (id.slot == 0) {
    const Match* const output = evidence.with_kind(Kind::kOutput);
    return inputs_of(evidence, output == nullptr ? id : output->id);
  }
  if (id.slot == kWeightSlot) {
    const Match* const weight = evidence.find(weight_id(id.step, id.path));
    return weight == nullptr ? std::vector<const Match*>() : std::vector{weight};
  }
  return records_before(evidence, id, [&](const Match& match) {
    return same_microbatch(match.id, id) &&
           (match.id.kind == Kind::kGradOutput || match.id.kind == Kind::kGradInput);
  });
}

// A magnitude over the largest number of a format.
struct ScaleOrigin {
  Amax amax;
  ElementType format = kFp8Formats[0];

  [[nodiscard]] std::string text() const {
    return amax.name + " over the largest number of " + format_text(format);
  }
};

std::optional<ScaleOrigin> made_from(double scale, const std::vector<Amax>& list) {
  for (const Amax& amax : list) {
    for (const ElementType format : kFp8Formats) {
      if (is_near(scale * format_of(format).largest, amax.value)) {
        return ScaleOrigin{amax, format};
      }
    }
  }
  return std::nullopt;
}

// "0.3 % saturate and 2 % become zero"
std::string losses_text(const Values& operand, double scale, ElementType type) {
  const FloatFormat& format = format_of(type);
  double saturated = 0.0;
  double lost = 0.0;
  for (const double value : operand.data) {
    const double scaled = std::abs(value) / scale;
    saturated += scaled > format.largest * (1.0 + 1e-6) ? 1.0 : 0.0;
    lost += value != 0.0 && scaled <= format.smallest() / 2.0 ? 1.0 : 0.0;
  }
  const auto all = static_cast<double>(operand.data.size());
  return short_number(100.0 * saturated / all) + " % saturate and " +
         short_number(100.0 * lost / all) + " % become zero";
}

std::string ratio_text(double ratio, bool same_format) {
  const std::string text = factor_text(ratio) + " x the reference's";
  const double exponent = std::log2(std::abs(ratio));
  if (!same_format) {
    return text + ": codes are numbers of another format";
  }
  return std::abs(exponent - std::round(exponent)) < 1e-5
             ? text + ", a power of two: codes keep their bits, only range is lost or gained"
             : text + ": the codes of all elements are computed from it";
}

std::optional<Hypothesis> from_operand(const Evidence& evidence,
                                       const Match& operand,
                                       double reference_scale,
                                       double candidate_scale) {
  const auto candidate = evidence.candidate(&operand);
  // A forced pass makes its scale of the candidate's own values.
  const auto reference =
      evidence.finding().tier() == Tier::kT1 ? candidate : evidence.reference(&operand);
  if (!reference || !candidate) {
    return std::nullopt;
  }
  const std::string name = to_string(operand.id);
  std::vector<Amax> of_reference;
  std::vector<Amax> of_candidate;
  add_magnitudes(*reference, name, of_reference);
  add_magnitudes(*candidate, name, of_candidate);
  for (const Shard& shard : operand.candidate) {
    add_magnitudes(
        local_values(shard), fmt::format("{} on rank {} alone", name, shard.rank), of_candidate);
  }
  add_history(evidence, WhichRun::kReference, of_reference);
  add_history(evidence, WhichRun::kCandidate, of_candidate);
  const auto right = made_from(reference_scale, of_reference);
  const auto wrong = made_from(candidate_scale, of_candidate);
  if (!right || !wrong || right->text() == wrong->text()) {
    return std::nullopt;
  }
  const double ratio = candidate_scale / reference_scale;
  const auto& codes = evidence.finding().codes;
  return Hypothesis{
      .signature = Signature::kFp8Scale,
      .sentence =
          fmt::format("the scale is {}; it is {}, in the reference {}; {}",
                      ratio_text(ratio, right->format == wrong->format),
                      wrong->text(),
                      right->text(),
                      codes ? codes_text(*codes)
                            : fmt::format("in the candidate {}, in the reference {}",
                                          losses_text(*candidate, candidate_scale, wrong->format),
                                          losses_text(*reference, reference_scale, right->format))),
      .named = {.factors = {ratio}},
      .bits = bits_of_choice(static_cast<double>(of_candidate.size() * kFp8Formats.size()))};
}

// The other format made the scale; which magnitude both were made from is not known.
std::optional<Hypothesis> from_other_format(double ratio) {
  const double formats =
      format_of(ElementType::kE5M2).largest / format_of(ElementType::kE4M3).largest;
  if (!is_near(ratio, formats) && !is_near(ratio, 1.0 / formats)) {
    return std::nullopt;
  }
  return Hypothesis{.signature = Signature::kFp8Scale,
                    .sentence = fmt::format("the scale is {}; that is the ratio of the largest "
                                            "numbers of E5M2 and E4M3",
                                            ratio_text(ratio, false)),
                    .named = {.factors = {ratio}},
                    // The magnitude itself, a number of F32, stays unknown.
                    .bits = 24.0};
}

// Every rank's scale or history is made from its own part: the largest of them, entry by entry, is
// the reference's.
std::optional<Hypothesis> from_own_parts(const Evidence& evidence, const Values& reference) {
  Values largest{reference.shape, std::vector<double>(reference.data.size())};
  double error = 0.0;
  for (const Shard& shard : evidence.match().candidate) {
    const Values own = local_values(shard);
    if (own.shape != reference.shape) {
      return std::nullopt;
    }
    error = std::max(error, distance(own, reference));
    std::ranges::transform(own.data, largest.data, largest.data.begin(), std::ranges::max);
  }
  const double rest = distance(largest, reference);
  if (rest > evidence.tolerance(error)) {
    return std::nullopt;
  }
  return Hypothesis{
      .signature = Signature::kFp8Scale,
      .sentence = fmt::format("ranks have values of their own, and the largest of them is the "
                              "reference's up to {}: every rank took the amax of its own part, and "
                              "the amax was not reduced over the ranks that share the tensor",
                              short_number(rest)),
      .named = {.ranks = evidence.finding().holders},
      .error = error,
      .residual = rest};
}

// A scale that only one side has: on the other one the operand keeps the precision that it had.
Hypotheses missing_scale(const Evidence& evidence) {
  const TensorVerdict& finding = evidence.finding();
  if (finding.status() == Status::kMissingInCandidate) {
    return {{.signature = Signature::kHigherPrecision,
             .sentence =
                 fmt::format("the candidate has no scale for {}: it does not quantise the operands "
                             "there, so FP8 was not active",
                             finding.id.path)}};
  }
  if (finding.status() == Status::kMissingInReference) {
    return {{.signature = Signature::kExtraRounding,
             .sentence = fmt::format("the reference has no scale for {}: only the candidate "
                                     "quantises its operands there",
                                     finding.id.path)}};
  }
  return {};
}

}  // namespace

Hypotheses find_fp8_scale(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  const bool is_scale = kind == Kind::kScale;
  if (!is_scale && kind != Kind::kAmaxHistory) {
    return {};
  }
  Hypotheses found = missing_scale(evidence);
  const auto reference = evidence.reference(&evidence.match());
  if (reference && evidence.copies_differ()) {
    append(found, from_own_parts(evidence, *reference));
    return found;
  }
  // One number that all ranks share.
  const Sides* const sides = evidence.sides();
  if (!is_scale || sides == nullptr || sides->size() != 1 || !(sides->reference.data[0] > 0.0) ||
      !(sides->candidate.data[0] > 0.0)) {
    return found;
  }
  const double right = sides->reference.data[0];
  const double wrong = sides->candidate.data[0];
  const std::vector<const Match*> operands = operands_of(evidence);
  for (const Match* operand : operands) {
    append(found, from_operand(evidence, *operand, right, wrong));
  }
  found = chosen_of(operands.size(), std::move(found));
  append(found, from_other_format(wrong / right));
  return found;
}

}  // namespace ttrace
