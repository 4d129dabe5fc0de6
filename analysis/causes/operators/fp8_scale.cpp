// Scales of FP8 operands: which magnitude a scale was made from, and what another one does to the
// numbers it quantises. scale = amax / largest number of the format: 448 (E4M3) or 57344 (E5M2).
#include "analysis/causes/common/modules.h"
#include "analysis/causes/signatures.h"
#include "analysis/checks/codes_check.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace ttrace {
namespace {

struct Format {
  std::string name;
  double largest = 0.0;
  double smallest = 0.0;  // subnormal; half of it is rounded to zero
};

const std::array<Format, 2>& formats() {
  static const std::array<Format, 2> kFormats = {Format{"E4M3", 448.0, 0x1p-9},
                                                 Format{"E5M2", 57344.0, 0x1p-16}};
  return kFormats;
}

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
  if (values.data.empty()) {
    return;
  }
  const auto [least, most] = std::ranges::minmax(values.data);
  list.push_back({std::max(std::abs(least), std::abs(most)), "the largest magnitude of " + name});
  list.push_back({most, "the largest signed value of " + name});
}

// The operand that slot 0 (input), 1 (weight) or 2 (gradient of the output) quantises may be: the
// weight, an input of the module, or a gradient that was recorded before the scale.
std::vector<const Match*> operands_of(const Evidence& evidence) {
  constexpr std::size_t kTried = 8;
  const TensorId& id = evidence.finding().id;
  if (id.slot == 0) {
    TensorId output = id;
    output.kind = Kind::kOutput;
    return inputs_of(evidence, evidence.find(output) == nullptr ? id : output);
  }
  std::vector<const Match*> list;
  if (id.slot == 1) {
    const Match* weight = evidence.find(weight_id(id.step, id.path));
    return weight == nullptr ? list : std::vector<const Match*>{weight};
  }
  for (const Match& match : evidence.matches()) {
    if (&match == &evidence.match()) {
      break;
    }
    if (match.id.step == id.step && match.id.microbatch == id.microbatch &&
        (match.id.kind == Kind::kGradOutput || match.id.kind == Kind::kGradInput)) {
      list.push_back(&match);
    }
  }
  std::reverse(list.begin(), list.end());
  list.resize(std::min(list.size(), kTried));
  return list;
}

struct ScaleOrigin {
  Amax amax;
  Format format;
};

std::optional<ScaleOrigin> made_from(double scale, const std::vector<Amax>& list) {
  for (const Amax& amax : list) {
    for (const Format& format : formats()) {
      if (is_near(scale * format.largest, amax.value)) {
        return ScaleOrigin{amax, format};
      }
    }
  }
  return std::nullopt;
}

// With the history of the same operand: its entries and the largest of them.
void add_history(const Evidence& evidence, WhichRun run, std::vector<Amax>& list) {
  TensorId id = evidence.finding().id;
  id.kind = Kind::kAmaxHistory;
  const auto history = evidence.value(id, run);
  if (!history || history->data.empty()) {
    return;
  }
  list.push_back({std::ranges::max(history->data), "the largest entry of the amax history"});
  for (std::size_t i = 0; i < history->data.size(); ++i) {
    if (history->data[i] > 0.0) {
      list.push_back({history->data[i], "entry " + std::to_string(i) + " of the amax history"});
    }
  }
}

// "0.3 % saturate and 2 % become zero"
std::string losses_text(const Values& operand, double scale, const Format& format) {
  double saturated = 0.0;
  double lost = 0.0;
  for (const double value : operand.data) {
    const double scaled = std::abs(value) / scale;
    saturated += scaled > format.largest * (1.0 + 1e-6) ? 1.0 : 0.0;
    lost += value != 0.0 && scaled <= format.smallest / 2.0 ? 1.0 : 0.0;
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
             : text + ": codes are rolled anew";
}

struct Scales {
  double reference = 0.0;
  double candidate = 0.0;
};

std::string made_text(const ScaleOrigin& made) {
  return made.amax.name + " over the largest number of " + made.format.name;
}

std::optional<Hypothesis> from_operand(const Evidence& evidence,
                                       const Match& operand,
                                       const Scales& scales) {
  const auto candidate = evidence.candidate(operand);
  // A forced pass makes its scale of the candidate's own values.
  const auto reference =
      evidence.finding().tier() == Tier::kT1 ? candidate : evidence.reference(operand);
  if (!reference || !candidate) {
    return std::nullopt;
  }
  const std::string name = to_string(operand.id);
  std::vector<Amax> of_reference;
  std::vector<Amax> of_candidate;
  add_magnitudes(*reference, name, of_reference);
  add_magnitudes(*candidate, name, of_candidate);
  for (const Shard& shard : operand.candidate) {
    add_magnitudes(local_values(shard),
                   name + " on rank " + std::to_string(shard.rank) + " alone",
                   of_candidate);
  }
  add_history(evidence, WhichRun::kReference, of_reference);
  add_history(evidence, WhichRun::kCandidate, of_candidate);
  const auto& codes = evidence.finding().codes;
  const auto right = made_from(scales.reference, of_reference);
  const auto wrong = made_from(scales.candidate, of_candidate);
  if (!right || !wrong || made_text(*right) == made_text(*wrong)) {
    return std::nullopt;
  }
  return Hypothesis{
      .signature = Signature::kFp8Scale,
      .sentence = fmt::format(
          "the scale is {}; it is {}, in the reference {}; {}",
          ratio_text(scales.candidate / scales.reference, right->format.name == wrong->format.name),
          made_text(*wrong),
          made_text(*right),
          codes ? codes_text(*codes)
                : fmt::format("in the candidate {}, in the reference {}",
                              losses_text(*candidate, scales.candidate, wrong->format),
                              losses_text(*reference, scales.reference, right->format))),
      .named = {.factors = {scales.candidate / scales.reference}},
      .bits = bits_of_choice(static_cast<double>(of_candidate.size() * formats().size()))};
}

// The two scales, where each is one number that all ranks share.
std::optional<Scales> scales_of(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  const bool fits = evidence.finding().id.kind == Kind::kScale && sides != nullptr &&
                    !evidence.copies_differ() && sides->reference.data.size() == 1 &&
                    sides->reference.data[0] > 0.0 && sides->candidate.data[0] > 0.0;
  return fits ? std::optional(Scales{sides->reference.data[0], sides->candidate.data[0]})
              : std::nullopt;
}

bool is_of_scale(const Evidence& evidence) {
  const Kind kind = evidence.finding().id.kind;
  return kind == Kind::kScale || kind == Kind::kAmaxHistory;
}

}  // namespace

// A scale that only one side has: on the other one the operand keeps the precision that it had.
std::optional<Hypothesis> find_missing_scale(const Evidence& evidence) {
  const TensorVerdict& finding = evidence.finding();
  if (!is_of_scale(evidence)) {
    return std::nullopt;
  }
  if (finding.status() == Status::kMissingInCandidate) {
    return Hypothesis{.signature = Signature::kHigherPrecision,
                      .sentence = fmt::format(
                          "the candidate has no scale for {}: it does not quantise the operands "
                          "there, so FP8 was not active",
                          finding.id.path)};
  }
  if (finding.status() == Status::kMissingInReference) {
    return Hypothesis{.signature = Signature::kExtraRounding,
                      .sentence = fmt::format("the reference has no scale for {}: only the "
                                              "candidate quantises its operands there",
                                              finding.id.path)};
  }
  return std::nullopt;
}

// Every rank's scale or history is made from its own part: the largest of them, entry by entry, is
// the reference's.
std::optional<Hypothesis> find_fp8_own_parts(const Evidence& evidence) {
  const auto reference =
      is_of_scale(evidence) ? evidence.reference(evidence.match()) : std::nullopt;
  const std::vector<Shard>& shards = evidence.match().candidate;
  if (!reference || shards.size() < 2 || !evidence.copies_differ()) {
    return std::nullopt;
  }
  Values largest{reference->shape, std::vector<double>(reference->data.size())};
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    const Values own = local_values(shard);
    if (own.data.size() != largest.data.size()) {
      return std::nullopt;
    }
    ranks.push_back(shard.rank);
    std::transform(own.data.begin(),
                   own.data.end(),
                   largest.data.begin(),
                   largest.data.begin(),
                   [](double left, double right) { return std::max(left, right); });
  }
  const double rest = distance(largest, *reference);
  if (rest > std::max(2.0 * evidence.bound(), 1e-3 * reference->norm())) {
    return std::nullopt;
  }
  return Hypothesis{
      .signature = Signature::kFp8Scale,
      .sentence = fmt::format("ranks have values of their own, and the largest of them is the "
                              "reference's up to {}: every rank took the amax of its own part, and "
                              "the amax was not reduced over the ranks that share the tensor",
                              short_number(rest)),
      .named = {.ranks = std::move(ranks)}};
}

// Another magnitude made the scale.
std::optional<Hypothesis> find_fp8_amax(const Evidence& evidence) {
  const auto scales = scales_of(evidence);
  const auto operands = scales ? operands_of(evidence) : std::vector<const Match*>();
  for (const Match* operand : operands) {
    if (auto found = from_operand(evidence, *operand, *scales)) {
      found->bits += bits_of_choice(static_cast<double>(operands.size()));
      return found;
    }
  }
  return std::nullopt;
}

// The other format made the scale; which magnitude both were made from is not known.
std::optional<Hypothesis> find_fp8_format(const Evidence& evidence) {
  const auto scales = scales_of(evidence);
  const double ratio = scales ? scales->candidate / scales->reference : 1.0;
  const double formats_ratio = formats()[1].largest / formats()[0].largest;
  if (!is_near(ratio, formats_ratio) && !is_near(ratio, 1.0 / formats_ratio)) {
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

}  // namespace ttrace
