#include "analysis/causes/common/factors.h"

#include "analysis/align/model_numbers.h"
#include "analysis/causes/common/hypothesis.h"
#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ttrace {
namespace {

constexpr double kZero = 1e-12;  // what fitting in double leaves of 0

// Tokens that count, in one micro-batch and over all of a step.
struct Tokens {
  double all = 0.0;      // of the step, padding and prompts included
  double counted = 0.0;  // of the step
  double own = 0.0;      // that count in the finding's micro-batch, or 0
  double batches = 0.0;
};

Tokens tokens_of(const Evidence& evidence) {
  Tokens tokens;
  for (const Match& match : evidence.records(Kind::kData)) {
    if (!evidence.vocabulary().is(Role::kLossMask, match.id.path)) {
      continue;
    }
    if (const auto mask = evidence.reference(&match)) {
      const double counted =
          static_cast<double>(std::count(mask->data.begin(), mask->data.end(), 1.0));
      tokens.all += static_cast<double>(mask->data.size());
      tokens.counted += counted;
      tokens.batches += 1.0;
      tokens.own = match.id.microbatch == evidence.finding().id.microbatch ? counted : tokens.own;
    }
  }
  return tokens;
}

using Factors = std::vector<Factor>;

void add_ratio(Factors& list, double numerator, double denominator, const std::string& meaning) {
  if (numerator > 0.0 && denominator > 0.0 && numerator != denominator) {
    list.push_back({numerator / denominator, meaning});
  }
}

void add_with_inverse(Factors& list, double value, const std::string& meaning) {
  add_ratio(list, value, 1.0, meaning);
  add_ratio(list, 1.0, value, "1/" + meaning);
}

void add_tokens(const Tokens& tokens, Factors& list) {
  const double mean = tokens.batches > 0.0 ? tokens.counted / tokens.batches : 0.0;
  add_ratio(list, tokens.counted, tokens.all, "tokens that count / all tokens");
  add_ratio(list, tokens.all, tokens.counted, "all tokens / tokens that count");
  add_ratio(list, tokens.own, mean, "tokens of this micro-batch / their mean over micro-batches");
  add_ratio(list, mean, tokens.own, "mean of tokens over micro-batches / those of this one");
}

void add_model(const Evidence& evidence, Factors& list) {
  const double hidden = evidence.model_number(model_keys::kHidden).value_or(0.0);
  const double heads = evidence.model_number(model_keys::kHeads).value_or(0.0);
  if (heads > 0.0) {
    add_with_inverse(list, std::sqrt(hidden / heads), "sqrt(head size)");
  }
  for (const char* key : {model_keys::kExperts, model_keys::kTopK}) {
    add_with_inverse(list, evidence.model_number(key).value_or(0.0), key);
  }
}

bool is_near(double value, double meaning, double deviation) {
  // A coefficient that is hardly known is near to everything.
  const double known = std::min(3.0 * deviation, 0.05 * std::abs(meaning));
  return std::abs(value - meaning) <= std::max(0.005 * std::abs(meaning), known);
}

std::string loss_scale(double value, double deviation) {
  constexpr int kSmallest = 8;  // 2^8
  const double exponent = std::round(std::log2(std::abs(value)));
  const bool is = std::abs(exponent) >= kSmallest &&
                  is_near(value, std::copysign(std::exp2(exponent), value), deviation);
  return is ? "2^" + std::to_string(std::lround(exponent)) + ", a loss scale" : "";
}

std::string meaning_of(const Evidence& evidence, double value, double deviation) {
  constexpr double kDraw = 1e-9;  // relative
  double nearest = std::numeric_limits<double>::infinity();
  std::string names;
  for (const Factor& factor : meaningful_factors(evidence)) {
    const double away = std::abs(value - factor.value);
    const double slack = kDraw * std::abs(factor.value);
    if (!is_near(value, factor.value, deviation) || away > nearest + slack) {
      continue;
    }
    names = (away < nearest - slack || names.empty() ? "" : names + " or ") + factor.meaning;
    nearest = std::min(nearest, away);
  }
  if (names.empty()) {
    names = loss_scale(value, deviation);
  }
  for (const auto& [number, name] : {std::pair(0.5, "1/2"), {2.0, "2"}}) {
    names = names.empty() && is_near(value, number, deviation) ? name : names;
  }
  return names;
}

}  // namespace

std::vector<Factor> meaningful_factors(const Evidence& evidence) {
  Factors list;
  for (const std::string& axis : evidence.axes()) {
    add_with_inverse(list, evidence.axis_size(axis), axis);
    add_with_inverse(list, std::pow(evidence.axis_size(axis), 2), axis + "^2");
  }
  add_with_inverse(list, evidence.microbatches(), "number of micro-batches");
  add_model(evidence, list);
  add_tokens(tokens_of(evidence), list);
  list.push_back({-1.0, "wrong sign"});
  return list;
}

std::string explain_factor(const Evidence& evidence, double value, double deviation) {
  if (std::abs(value) < kZero) {
    return "0";
  }
  const std::string meaning = meaning_of(evidence, value, deviation);
  const double known = deviation < kZero * std::abs(value) ? 0.0 : deviation;
  return factor_text(value) + " +- " + short_number(known) +
         (meaning.empty() ? "" : " = " + meaning);
}

bool has_meaning(const Evidence& evidence, double value, double deviation) {
  return std::abs(value) >= kZero && !meaning_of(evidence, value, deviation).empty();
}

double bits_of_factor(const Evidence& evidence, double value, double deviation) {
  if (std::abs(value) < kZero) {
    return 1.0;
  }
  const auto meanings = static_cast<double>(meaningful_factors(evidence).size());
  return has_meaning(evidence, value, deviation)
             ? std::min(bits_of_choice(meanings + 1.0), bits_of_number(evidence))
             : bits_of_number(evidence);
}

std::vector<std::string> axes_in(const Evidence& evidence, double value) {
  std::vector<std::string> axes;
  for (const std::string& axis : evidence.axes()) {
    const double size = evidence.axis_size(axis);
    if (is_near(value, size, 0.0) || is_near(value, 1.0 / size, 0.0)) {
      axes.push_back(axis);
    }
  }
  return axes;
}

std::string axis_of_size(const Evidence& evidence, double value) {
  for (const std::string& axis : evidence.axes()) {
    const double size = evidence.axis_size(axis);
    if (std::abs(value - size) <= 0.01 * size) {
      return axis;
    }
  }
  return "";
}

std::vector<std::vector<std::string>> subsets_of(const std::vector<std::string>& axes) {
  std::vector<std::vector<std::string>> subsets;
  for (std::size_t subset = 1; subset < std::size_t{1} << axes.size(); ++subset) {
    std::vector<std::string>& chosen = subsets.emplace_back();
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((subset >> i & 1U) != 0) {
        chosen.push_back(axes[i]);
      }
    }
  }
  std::ranges::stable_sort(subsets, {}, &std::vector<std::string>::size);
  return subsets;
}

}  // namespace ttrace
