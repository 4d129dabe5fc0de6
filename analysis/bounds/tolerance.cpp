#include "analysis/bounds/tolerance.h"

#include "analysis/align/tensor_pair.h"
#include "analysis/findings/wording.h"
#include "trace/base/parse_integer.h"
#include "trace/file/record.h"

#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ttrace {
namespace {

// |c - r| over what is allowed; 0 where the two are equal.
double used_share(double r, double c, double allowed) {
  if (r == c || (std::isnan(r) && std::isnan(c))) {
    return 0.0;
  }
  // Any difference of an infinite or undefined element is beyond, even with an infinite rtol * |r|.
  if (!std::isfinite(r) || !std::isfinite(c) || allowed == 0.0) {
    return std::numeric_limits<double>::infinity();
  }
  return std::abs(c - r) / allowed;
}

}  // namespace

std::string to_string(const Tolerance& tolerance) {
  return fmt::format(
      "rtol {}, atol {}", short_number(tolerance.rtol), short_number(tolerance.atol));
}

ToleranceCheck check_tolerance(const Tolerance& tolerance, const TensorPair& pair) {
  ToleranceCheck check;
  double norm_squared = 0.0;
  for_each_block(pair, [&](auto reference, auto candidate, std::int64_t start) {
    for (std::size_t i = 0; i < reference.size(); ++i) {
      const double r = reference[i];
      const double allowed = tolerance.atol + tolerance.rtol * std::abs(r);
      norm_squared += std::isfinite(r) ? allowed * allowed : 0.0;
      const double share = used_share(r, candidate[i], allowed);
      check.beyond += share > 1.0 ? 1 : 0;
      if (share > check.worst) {
        check.worst = share;
        check.worst_index = start + static_cast<std::int64_t>(i);
      }
    }
  });
  check.norm = std::sqrt(norm_squared);
  return check;
}

void ToleranceRules::add(Rules& rules, const std::string& argument) {
  const auto refuse = [&](const std::string& why) {
    TTRACE_THROW(UsageError,
                 fmt::format("{} is '{}'{}; it must be a number of at least 0, or REGEX:NUMBER for "
                             "the tensors whose whole id matches REGEX",
                             rules.option,
                             argument,
                             why));
  };
  const std::size_t colon = argument.rfind(':');
  const std::size_t begin = colon == std::string::npos ? 0 : colon + 1;
  const std::optional<double> value =
      parse_number<double>(std::string_view(argument).substr(begin));
  if (!value || !std::isfinite(*value) || *value < 0.0) {
    refuse("");
  }
  if (colon == std::string::npos) {
    if (rules.all) {
      refuse(fmt::format(", but an earlier one sets {} for all tensors", short_number(*rules.all)));
    }
    rules.all = value;
  } else {
    rules.patterns.emplace_back(rules.option, argument.substr(0, colon));
    rules.values.push_back(*value);
  }
}

std::optional<double> ToleranceRules::find(Rules& rules, const std::string& id) {
  for (std::size_t i = 0; i < rules.patterns.size(); ++i) {
    if (rules.patterns[i].matches(id)) {
      return rules.values[i];
    }
  }
  return rules.all;
}

std::optional<Tolerance> ToleranceRules::of(const TensorId& id) {
  const bool by_text = !rtol_.patterns.empty() || !atol_.patterns.empty();
  const std::string text = by_text ? ttrace::to_string(id) : std::string();
  const std::optional<double> rtol = find(rtol_, text);
  const std::optional<double> atol = find(atol_, text);
  if (!rtol && !atol) {
    return std::nullopt;
  }
  return Tolerance{rtol.value_or(0.0), atol.value_or(0.0)};
}

std::vector<std::string> ToleranceRules::unused() const {
  std::vector<std::string> sentences;
  add_unused(rtol_.patterns, "whole tensor id that no earlier rule matches", sentences);
  add_unused(atol_.patterns, "whole tensor id that no earlier rule matches", sentences);
  return sentences;
}

}  // namespace ttrace
