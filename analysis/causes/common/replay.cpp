#include "analysis/causes/common/replay.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ttrace {

Hypothesis Replayed::hypothesis(Signature signature,
                                std::size_t choices,
                                const std::string& what,
                                const std::string& operands) const {
  return {.signature = signature,
          .sentence = fmt::format("{}; computed again from the candidate's own {}, which leaves {} "
                                  "of {}",
                                  what,
                                  operands,
                                  short_number(rest),
                                  short_number(before)),
          .error = before,
          .residual = std::sqrt(std::max(0.0, rest * rest - clean * clean)),
          .bits = bits_of_choice(static_cast<double>(choices))};
}

std::optional<Reproduced> reproduce(const Replay& replay) {
  Reproduced best{0, HUGE_VAL};
  for (std::size_t i = 0; i < replay.variants.size(); ++i) {
    const double rest = distance(replay.variants[i](WhichRun::kReference), replay.reference);
    best = rest < best.rest ? Reproduced{i, rest} : best;
  }
  return reproduces(best.rest, norm(replay.reference)) ? std::optional(best) : std::nullopt;
}

std::vector<Replayed> other_variants(const Evidence& evidence,
                                     const Replay& replay,
                                     const std::optional<Reproduced>& right) {
  if (!right) {
    return {};
  }
  const auto rest_of = [&](std::size_t i) {
    return distance(replay.variants[i](WhichRun::kCandidate), replay.candidate);
  };
  const double before = rest_of(right->variant);
  if (before <= 2.0 * right->rest) {
    return {};
  }
  const double share =
      static_cast<double>(replay.reference.size()) / static_cast<double>(evidence.sides()->size());
  // The round-off of a replay is what it leaves of the reference, or what the bound grants where
  // the reference is a wide one.
  const double allowed =
      allowed_rest(before, std::max(right->rest, std::sqrt(share) * evidence.bound()));
  std::vector<Replayed> found;
  for (std::size_t i = 0; i < replay.variants.size(); ++i) {
    const double rest = i == right->variant ? HUGE_VAL : rest_of(i);
    if (rest <= allowed) {
      found.push_back({right->variant, i, right->rest, before, rest});
    }
  }
  std::ranges::stable_sort(found, {}, &Replayed::rest);
  return found;
}

std::vector<double> rows_of(const Values& matrix, std::size_t stride) {
  const auto width = static_cast<std::size_t>(matrix.shape.back());
  std::vector<double> rows;
  for (std::size_t at = 0; at < matrix.data.size(); at += stride * width) {
    const double* const first = matrix.data.data() + at;
    rows.insert(rows.end(), first, first + width);
  }
  return rows;
}

std::vector<double> weight_gradient(const Values& g, const Values& x, std::size_t stride) {
  const auto out = static_cast<std::size_t>(g.shape.back());
  const auto in = static_cast<std::size_t>(x.shape.back());
  if (g.data.size() * in != x.data.size() * out) {
    return {};
  }
  std::vector<double> result((out + stride - 1) / stride * in);
  for (std::size_t row = 0; row * out < g.data.size(); ++row) {
    const double* const input = x.data.data() + row * in;
    for (std::size_t o = 0; o < out; o += stride) {
      const double factor = g.data[row * out + o];
      double* const sum = result.data() + o / stride * in;
      for (std::size_t i = 0; i < in; ++i) {
        sum[i] += factor * input[i];
      }
    }
  }
  return result;
}

}  // namespace ttrace
