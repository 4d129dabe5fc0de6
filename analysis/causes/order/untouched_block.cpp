#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

namespace ttrace {
namespace {

constexpr std::int64_t kFewest = 2;  // slices; one alone is named by find_localised

// What a buffer may hold that nobody wrote to.
struct Filling {
  std::string name;            // "zero", "what it holds for micro-batch 0, in every bit"
  std::vector<double> values;  // empty: zeros

  [[nodiscard]] double at(std::size_t position) const {
    return values.empty() ? 0.0 : values[position];
  }
};

std::vector<Filling> fillings(const Evidence& evidence) {
  std::vector<Filling> result = {{"zero", {}}};
  TensorId before = evidence.finding().id;
  const auto add = [&](const std::string& name) {
    const Match* match = evidence.find(before);
    auto values = match == nullptr ? std::nullopt : evidence.candidate(*match);
    if (values && values->shape == evidence.sides()->candidate.shape) {
      result.push_back({name, std::move(values->data)});
    }
  };
  if (before.microbatch > 0) {
    --before.microbatch;
    add("what it holds for micro-batch " + std::to_string(before.microbatch) + ", in every bit,");
  }
  before = evidence.finding().id;
  --before.step;
  add("what it held one step earlier, in every bit,");
  return result;
}

// Slices in which the candidate is the filling and the reference is not.
std::vector<std::int64_t> untouched(const Sides& sides, const View& view, const Filling& filling) {
  std::vector<bool> filled(static_cast<std::size_t>(view.size), true);
  std::vector<bool> differs(static_cast<std::size_t>(view.size));
  for (std::size_t i = 0; i < sides.candidate.data.size(); ++i) {
    const auto slice = static_cast<std::size_t>(view.slice_of(i));
    filled[slice] = filled[slice] && sides.candidate.data[i] == filling.at(i);
    differs[slice] = differs[slice] || sides.reference.data[i] != filling.at(i);
  }
  std::vector<std::int64_t> slices;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    if (filled[i] && differs[i]) {
      slices.push_back(static_cast<std::int64_t>(i));
    }
  }
  return slices;
}

// One run of neighbours, and not all there is.
bool is_block(const std::vector<std::int64_t>& slices, const View& view) {
  return std::ssize(slices) >= kFewest && std::ssize(slices) < view.size &&
         slices.back() - slices.front() + 1 == std::ssize(slices);
}

}  // namespace

std::optional<Hypothesis> find_untouched_block(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double tolerance = std::min(evidence.tolerance(sides->error), rest_elsewhere(evidence));
  const std::vector<Filling> fills = fillings(evidence);
  for (const Filling& filling : fills) {
    for (const NamedSlicing& slicing : named_slicings(sides->reference.shape)) {
      const auto slices = untouched(*sides, slicing.view, filling);
      const double rest = error_outside(slice_energies(*sides, slicing.view), slices);
      if (slicing.rows || !is_block(slices, slicing.view) || rest > tolerance) {
        continue;
      }
      return Hypothesis{
          .signature = Signature::kZeroBlock,
          .sentence = fmt::format("slices {} of {} along {}{}, are {} in the candidate and not in "
                                  "the reference: nothing was written there",
                                  ranges_text(slices),
                                  slicing.view.size,
                                  slicing.name,
                                  holders_text(evidence, slicing.dim, slices),
                                  filling.name),
          .named = {.ranks = holders_of(evidence, slicing.dim, slices)},
          .error = sides->error,
          .residual = rest,
          .coefficients = 2.0,  // where it begins and ends
          .bits = bits_of_choice(static_cast<double>(fills.size()))};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
