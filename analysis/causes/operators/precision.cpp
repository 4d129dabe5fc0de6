// A rounding too many or too few: all numbers of one side alone are numbers of a lower format.
#include "analysis/align/values.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <ttrace/element_type.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

// Formats with fewer bits than `type`, finest first.
std::vector<ElementType> below(ElementType type) {
  constexpr std::array kFormats = {ElementType::kF32,
                                   ElementType::kF16,
                                   ElementType::kBF16,
                                   ElementType::kE4M3,
                                   ElementType::kE5M2};
  std::vector<ElementType> formats;
  for (const ElementType format : kFormats) {
    if (rounding_error(format) > rounding_error(type)) {
      formats.push_back(format);
    }
  }
  return formats;
}

// Share of the different values that are neither zero nor a number of `format`.
double share_beyond(std::vector<double> values, ElementType format) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  const std::vector<double> held = rounded(values, format);
  double beyond = 0.0;
  double all = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all += values[i] != 0.0 ? 1.0 : 0.0;
    beyond += values[i] != held[i] ? 1.0 : 0.0;
  }
  constexpr double kFewest = 16.0;  // of so many values none is a number of a format by chance
  return all < kFewest ? 0.5 : beyond / all;
}

// The coarsest format of which all of `values` are numbers, where not nearly all of `others` are.
std::optional<ElementType> held_in(const std::vector<double>& values,
                                   const std::vector<double>& others,
                                   ElementType stored) {
  constexpr double kMostLost = 0.5;
  std::optional<ElementType> found;
  for (const ElementType format : below(stored)) {
    if (share_beyond(values, format) == 0.0 && share_beyond(others, format) > kMostLost) {
      found = format;
    }
  }
  return found;
}

// A few roundings: sums of partial sums are rounded each time.
bool explained(const Sides& sides, ElementType format) {
  constexpr double kRoundings = 4.0;
  return sides.error <= kRoundings * rounding_error(format) * sides.reference.norm();
}

}  // namespace

Hypotheses find_precision(const Evidence& evidence, const Sides& sides) {
  const ElementType type = evidence.match().candidate.front().record->type;
  if (!is_floating(type) || !is_floating(evidence.match().reference.front().record->type)) {
    return {};
  }
  Hypotheses found;
  const auto add = [&](const Values& held,
                       const Values& others,
                       Signature signature,
                       std::string_view sentence) {
    const auto format = held_in(held.data, others.data, type);
    if (format && explained(sides, *format)) {
      found.push_back({.signature = signature,
                       .sentence = fmt::format(
                           fmt::runtime(sentence),
                           fmt::arg("type", name_of(type)),
                           fmt::arg("format", name_of(*format)),
                           fmt::arg("error", short_number(sides.error / sides.reference.norm())))});
    }
  };
  add(sides.candidate,
      sides.reference,
      Signature::kExtraRounding,
      "all of the candidate's {type} numbers are {format} numbers, the reference's are not; the "
      "error, {error} of the reference's norm, is that of roundings to {format}");
  add(sides.reference,
      sides.candidate,
      Signature::kHigherPrecision,
      "all of the reference's numbers are {format} numbers, the candidate's are not; the error, "
      "{error} of the reference's norm, is that of roundings to {format} that the candidate left "
      "out: autocast or FP8 was not active here");
  return chosen_of(2 * below(type).size(), std::move(found));
}

}  // namespace ttrace
