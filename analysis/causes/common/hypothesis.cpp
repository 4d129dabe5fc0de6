#include "analysis/causes/common/hypothesis.h"

#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace ttrace {
namespace {

// What one hypothesis leaves of an error is not independent from element to element: it counts as
// this many independent numbers, whatever the size of the tensor. More would let differences far
// below the bound decide against what is simple.
constexpr double kIndependent = 32.0;

// The smallest relative error that counts as one where no bound is known.
constexpr double kResolution = 1e-3;

double elements_of(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  return sides == nullptr ? kIndependent : static_cast<double>(sides->reference.data.size());
}

// Bits that `count` independent numbers take if their norm is `ratio` times that of round-off.
double bits_of_numbers(double count, double ratio) {
  return 0.5 * count * std::log2(1.0 + ratio * ratio);
}

}  // namespace

Hypothesis about(const Sides& sides, Signature signature, double rest, std::string sentence) {
  return {.signature = signature,
          .sentence = std::move(sentence),
          .error = sides.error,
          .residual = rest};
}

void append(Hypotheses& list, Hypotheses more) {
  std::ranges::move(more, std::back_inserter(list));
}

void append(Hypotheses& list, std::optional<Hypothesis> one) {
  if (one) {
    list.push_back(*std::move(one));
  }
}

std::string fall_text(double error, double rest) {
  return "the error falls from " + short_number(error) + " to " + short_number(rest);
}

double bits_of_choice(double count) {
  return count > 1.0 ? std::log2(count) : 0.0;
}

Hypotheses chosen_of(std::size_t count, Hypotheses hypotheses) {
  for (Hypothesis& each : hypotheses) {
    each.bits += bits_of_choice(static_cast<double>(count));
  }
  return hypotheses;
}

double bits_of_number(const Evidence& evidence) {
  return 0.5 * std::log2(std::max(2.0, elements_of(evidence)));
}

double description_length(const Evidence& evidence, const Hypothesis& hypothesis) {
  const Sides* sides = evidence.sides();
  const double elements = elements_of(evidence);
  const double independent = std::min(kIndependent, elements);
  // Errors are those of the whole tensor; a hypothesis may have looked at a sample of it.
  const double left = hypothesis.error > 0.0 ? hypothesis.residual / hypothesis.error : 0.0;
  const double error = sides == nullptr || evidence.bound() <= 0.0
                           ? 1.0 / kResolution
                           : sides->error / evidence.bound();
  // One round-off is left of any right hypothesis, whatever it was compared with.
  const double rest = std::sqrt(std::max(
      0.0, left * error * left * error - evidence.round_off_share() * evidence.round_off_share()));
  // A free number costs what BIC asks for. Many cost at most a part of what it costs to explain
  // nothing: the root of the share of the tensor that they stand for. The share itself would make
  // one number for every row of a wide tensor nearly free.
  const double share = std::sqrt(hypothesis.coefficients / elements);
  return bits_of_numbers(independent, rest) +
         std::min(hypothesis.coefficients * bits_of_number(evidence),
                  share * bits_of_numbers(independent, error)) +
         hypothesis.bits;
}

}  // namespace ttrace
