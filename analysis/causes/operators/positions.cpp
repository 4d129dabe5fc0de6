// Rotary positions, from queries and keys as attention got them. A head's numbers are pairs that
// were turned by p f_k, p the token's position and f_k = base^(-2k/d). Where only positions differ,
// c = r turned by (p_c - p_r) f_k; where the base or the pairs differ, r is turned back first.
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <string>

namespace ttrace {
namespace {

using Pair = std::complex<double>;

// Which numbers of a head make pair k: k and k + d/2, or 2k and 2k + 1.
enum class Pairs { kHalves, kNeighbours };

// [s, b, n, d] as pairs: rows are (token, sample), each with n heads of d/2 pairs.
struct Rotary {
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  std::int64_t heads = 0;
  std::int64_t pairs = 0;

  [[nodiscard]] std::int64_t rows() const { return tokens * samples; }
  [[nodiscard]] std::size_t first(std::int64_t row, std::int64_t head) const {
    return static_cast<std::size_t>((row * heads + head) * 2 * pairs);
  }
};

Pair pair_at(const std::vector<double>& data,
             const Rotary& heads,
             std::size_t head,
             std::int64_t k,
             Pairs p) {
  const auto pairs = static_cast<std::size_t>(heads.pairs);
  const auto at = static_cast<std::size_t>(k);
  return p == Pairs::kHalves ? Pair(data[head + at], data[head + at + pairs])
                             : Pair(data[head + 2 * at], data[head + 2 * at + 1]);
}

std::vector<double> frequencies(double base, std::int64_t pairs) {
  std::vector<double> result;
  for (std::int64_t k = 0; k < pairs; ++k) {
    result.push_back(std::pow(base, -static_cast<double>(k) / static_cast<double>(pairs)));
  }
  return result;
}

// sum over heads of conj(r) c for every pair of a row.
std::vector<Pair> turns(const Sides& sides, const Rotary& heads, std::int64_t row, Pairs pairs) {
  std::vector<Pair> sums(static_cast<std::size_t>(heads.pairs));
  for (std::int64_t head = 0; head < heads.heads; ++head) {
    const std::size_t first = heads.first(row, head);
    for (std::int64_t k = 0; k < heads.pairs; ++k) {
      sums[static_cast<std::size_t>(k)] +=
          std::conj(pair_at(sides.reference.data, heads, first, k, pairs)) *
          pair_at(sides.candidate.data, heads, first, k, pairs);
    }
  }
  return sums;
}

double agreement(const std::vector<Pair>& sums,
                 const std::vector<double>& frequencies,
                 std::int64_t offset) {
  double total = 0.0;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    total += (sums[k] * std::polar(1.0, -static_cast<double>(offset) * frequencies[k])).real();
  }
  return total;
}

// The whole number of positions that turns r into c best; `last` is tried first.
std::int64_t best_offset(const std::vector<Pair>& sums,
                         const std::vector<double>& frequencies,
                         std::int64_t tokens,
                         std::int64_t last) {
  constexpr double kClose = 0.999;
  double most = 0.0;
  for (const Pair& sum : sums) {
    most += std::abs(sum);
  }
  if (agreement(sums, frequencies, last) >= kClose * most) {
    return last;
  }
  std::int64_t best = 0;
  double highest = agreement(sums, frequencies, 0);
  for (std::int64_t offset = -tokens; offset <= tokens; ++offset) {
    if (const double found = agreement(sums, frequencies, offset); found > highest) {
      highest = found;
      best = offset;
    }
  }
  return best;
}

// How positions are turned into angles.
struct RotaryRule {
  Pairs pairs = Pairs::kHalves;
  double base = 0.0;
};

std::string name_of(const RotaryRule& rule) {
  return std::string(rule.pairs == Pairs::kHalves ? "pairs k, k + d/2" : "pairs 2k, 2k + 1") +
         " and base " + short_number(rule.base);
}

// Every row turned on by as many positions as it is given.
std::vector<double> turned(const std::vector<double>& data,
                           const Rotary& heads,
                           const RotaryRule& rule,
                           const std::vector<double>& positions) {
  const std::vector<double> frequency = frequencies(rule.base, heads.pairs);
  const std::int64_t stride = rule.pairs == Pairs::kHalves ? heads.pairs : 1;
  std::vector<double> result(data.size());
  for (std::int64_t row = 0; row < heads.rows(); ++row) {
    for (std::int64_t k = 0; k < heads.pairs; ++k) {
      const Pair turn = std::polar(
          1.0, positions[static_cast<std::size_t>(row)] * frequency[static_cast<std::size_t>(k)]);
      for (std::int64_t head = 0; head < heads.heads; ++head) {
        const std::size_t first = heads.first(row, head);
        const Pair value = pair_at(data, heads, first, k, rule.pairs) * turn;
        const std::size_t at =
            first + static_cast<std::size_t>(rule.pairs == Pairs::kHalves ? k : 2 * k);
        result[at] = value.real();
        result[at + static_cast<std::size_t>(stride)] = value.imag();
      }
    }
  }
  return result;
}

std::optional<Rotary> heads_of(const Evidence& evidence, const Sides& sides) {
  const TensorId& id = evidence.finding().id;
  const auto& shape = sides.shape();
  const bool fits = id.kind == Kind::kInput &&
                    evidence.vocabulary().is(Role::kAttention, id.path) && shape.size() == 4 &&
                    shape[3] % 2 == 0 && shape[2] > 1;
  return fits ? std::optional(Rotary{shape[0], shape[1], shape[2], shape[3] / 2}) : std::nullopt;
}

std::vector<double> negative(std::vector<double> values) {
  for (double& value : values) {
    value = -value;
  }
  return values;
}

// Where a token stands in its sample; documents that restart them are not known here.
std::vector<double> plain_positions(const Rotary& heads) {
  std::vector<double> positions;
  for (std::int64_t row = 0; row < heads.rows(); ++row) {
    positions.push_back(static_cast<double>(row / heads.samples));
  }
  return positions;
}

std::vector<double> fitted_offsets(const Sides& sides,
                                   const Rotary& heads,
                                   const RotaryRule& rule) {
  const std::vector<double> frequency = frequencies(rule.base, heads.pairs);
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(heads.rows()));
  for (std::int64_t row = 0; row < heads.rows(); ++row) {
    const std::int64_t last =
        row < heads.samples ? 0 : offsets[static_cast<std::size_t>(row - heads.samples)];
    offsets[static_cast<std::size_t>(row)] =
        best_offset(turns(sides, heads, row, rule.pairs), frequency, heads.tokens, last);
  }
  return {offsets.begin(), offsets.end()};
}

// "tokens 16-31 by -16, tokens 32-47 by 16 and 3 more ranges", of the first sample with any.
std::string offsets_text(const Evidence& evidence,
                         const Rotary& heads,
                         const std::vector<double>& offsets) {
  constexpr int kShown = 4;
  std::string text;
  int ranges = 0;
  std::vector<std::int64_t> wrong;
  for (std::int64_t sample = 0; sample < heads.samples && ranges == 0; ++sample) {
    const auto at = [&](std::int64_t token) {
      return offsets[static_cast<std::size_t>(token * heads.samples + sample)];
    };
    for (std::int64_t token = 0, last = 0; token < heads.tokens; token = last + 1) {
      for (last = token; last + 1 < heads.tokens && at(last + 1) == at(token);) {
        ++last;
      }
      for (std::int64_t i = token; i <= last && at(token) != 0.0; ++i) {
        wrong.push_back(i);
      }
      if (at(token) != 0.0 && ++ranges <= kShown) {
        text += (text.empty() ? "tokens " : ", tokens ") + std::to_string(token) + "-" +
                std::to_string(last) + " by " + std::to_string(std::lround(at(token)));
      }
    }
  }
  return text +
         (ranges > kShown ? " and " + std::to_string(ranges - kShown) + " more ranges" : "") +
         holders_text(evidence, 0, wrong);
}

Hypothesis turned_by(const Sides& sides, const std::string& what, double rest) {
  return about(
      sides, Signature::kPositions, rest, what + "; turned back, " + fall_text(sides.error, rest));
}

// Places along the tokens where the offset changes.
double changes_of(const std::vector<double>& offsets) {
  double changes = 1.0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    changes += offsets[i] != offsets[i - 1] ? 1.0 : 0.0;
  }
  return changes;
}

// Whether a few rows are turned as a whole: all of them are looked at only then.
bool may_be_turned(const Sides& sides, const Rotary& heads, const RotaryRule& rule) {
  constexpr std::int64_t kLookedAt = 16;
  constexpr double kMostly = 0.8;
  const std::vector<double> frequency = frequencies(rule.base, heads.pairs);
  double agreed = 0.0;
  double most = 0.0;
  for (std::int64_t i = 0; i < kLookedAt; ++i) {
    const auto sums = turns(sides, heads, i * (heads.rows() - 1) / (kLookedAt - 1), rule.pairs);
    agreed += agreement(sums, frequency, best_offset(sums, frequency, heads.tokens, 0));
    for (const Pair& sum : sums) {
      most += std::abs(sum);
    }
  }
  return agreed >= kMostly * most;
}

std::optional<Hypothesis> other_positions(const Evidence& evidence,
                                          const Sides& sides,
                                          const Rotary& heads,
                                          const RotaryRule& rule) {
  if (!may_be_turned(sides, heads, rule)) {
    return std::nullopt;
  }
  const std::vector<double> offsets = fitted_offsets(sides, heads, rule);
  const Values moved{sides.shape(), turned(sides.reference.data, heads, rule, offsets)};
  const double rest = distance(sides.candidate, moved);
  if (!evidence.explains(rest)) {
    return std::nullopt;
  }
  if (offsets == negative(plain_positions(heads))) {
    Hypothesis found = turned_by(sides, "rotary positions were not applied", rest);
    found.bits = 1.0;
    return found;
  }
  Hypothesis found =
      turned_by(sides, "rotary positions are off: " + offsets_text(evidence, heads, offsets), rest);
  found.coefficients = changes_of(offsets);
  return found;
}

std::optional<Hypothesis> other_rule(const Evidence& evidence,
                                     const Sides& sides,
                                     const Rotary& heads,
                                     const RotaryRule& from,
                                     const RotaryRule& to) {
  const std::vector<double> positions = plain_positions(heads);
  const std::vector<double> plain = turned(sides.reference.data, heads, from, negative(positions));
  const double rest =
      distance(sides.candidate, {sides.shape(), turned(plain, heads, to, positions)});
  return evidence.explains(rest)
             ? std::optional(turned_by(
                   sides,
                   fmt::format("the candidate uses rotary positions with {} where the reference "
                               "has {}",
                               name_of(to),
                               name_of(from)),
                   rest))
             : std::nullopt;
}

// The rules of a run's own pairs and base, and those that others use.
std::vector<RotaryRule> others_of(const RotaryRule& rule) {
  std::vector<RotaryRule> others = {
      {rule.pairs == Pairs::kHalves ? Pairs::kNeighbours : Pairs::kHalves, rule.base}};
  for (const double base : {100.0, 500.0, 1e3, 5e3, 1e4, 2e4, 5e4, 1e5, 5e5, 1e6, 1e7}) {
    others.push_back({rule.pairs, base});
  }
  return others;
}

}  // namespace

Hypotheses find_positions(const Evidence& evidence, const Sides& sides) {
  constexpr double kUsualBase = 10000.0;
  const auto heads = heads_of(evidence, sides);
  Hypotheses positions;
  Hypotheses rules;
  std::size_t tried = 0;
  for (const Pairs pairs : {Pairs::kHalves, Pairs::kNeighbours}) {
    const RotaryRule rule{pairs, evidence.model_number("rotary_base").value_or(kUsualBase)};
    if (auto found = heads ? other_positions(evidence, sides, *heads, rule) : std::nullopt) {
      positions.push_back(*std::move(found));
    }
    const std::vector<RotaryRule> others = others_of(rule);
    tried += others.size();
    for (const RotaryRule& other : others) {
      if (auto found = heads ? other_rule(evidence, sides, *heads, rule, other) : std::nullopt) {
        rules.push_back(*std::move(found));
      }
    }
  }
  rules = chosen_of(tried, std::move(rules));
  positions.insert(positions.end(), rules.begin(), rules.end());
  return positions;
}

}  // namespace ttrace
