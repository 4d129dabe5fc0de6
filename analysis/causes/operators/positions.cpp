// Rotary positions, from queries and keys as attention got them. A head's numbers are pairs that
// were turned by p f_k, p the token's position and f_k = base^(-2k/d). Where only positions differ,
// c = r turned by (p_c - p_r) f_k; where the base or the pairs differ, r is turned back first.
#include "analysis/align/model_numbers.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <string>

namespace ttrace {
namespace {

using Pair = std::complex<double>;
using Offsets = std::vector<double>;  // in positions, by row

// How [s, b, n, d] is turned: rows are (token, sample), each with n heads of d/2 pairs.
struct Rotation {
  std::size_t tokens = 0;
  std::size_t samples = 0;
  std::size_t heads = 0;
  std::size_t pairs = 0;
  bool halves = true;  // pair k is k and k + d/2, else 2k and 2k + 1
  double base = 0.0;
  std::vector<double> frequencies = {};

  Rotation(const std::vector<std::int64_t>& shape, bool in_halves, double of_base)
      : tokens(static_cast<std::size_t>(shape[0])),
        samples(static_cast<std::size_t>(shape[1])),
        heads(static_cast<std::size_t>(shape[2])),
        pairs(static_cast<std::size_t>(shape[3]) / 2),
        halves(in_halves),
        base(of_base) {
    for (std::size_t k = 0; k < pairs; ++k) {
      frequencies.push_back(std::pow(base, -static_cast<double>(k) / static_cast<double>(pairs)));
    }
  }

  [[nodiscard]] std::string name() const {
    return std::string(halves ? "pairs k, k + d/2" : "pairs 2k, 2k + 1") + " and base " +
           short_number(base);
  }
  [[nodiscard]] std::size_t rows() const { return tokens * samples; }
  // Where the first number of a pair is, and how far behind it the second.
  [[nodiscard]] std::size_t place(std::size_t row, std::size_t head, std::size_t k) const {
    return (row * heads + head) * 2 * pairs + (halves ? k : 2 * k);
  }
  [[nodiscard]] std::size_t stride() const { return halves ? pairs : 1; }
  [[nodiscard]] Pair pair_at(const std::vector<double>& data, std::size_t place) const {
    return {data[place], data[place + stride()]};
  }
  // Where a token stands in its sample; documents that restart them are not known here.
  [[nodiscard]] Offsets positions(double sign) const {
    Offsets positions;
    for (std::size_t row = 0; row < rows(); ++row) {
      positions.push_back(sign * static_cast<double>(row / samples));
    }
    return positions;
  }
  // Every row turned on by as many positions as it is given.
  [[nodiscard]] Values turned(const Values& values, const Offsets& offsets) const {
    Values result = values;
    for (std::size_t row = 0; row < rows(); ++row) {
      for (std::size_t k = 0; k < pairs; ++k) {
        const Pair turn = std::polar(1.0, offsets[row] * frequencies[k]);
        for (std::size_t head = 0; head < heads; ++head) {
          const std::size_t at = place(row, head, k);
          const Pair value = pair_at(values.data, at) * turn;
          result.data[at] = value.real();
          result.data[at + stride()] = value.imag();
        }
      }
    }
    return result;
  }
};

// What turns the reference's row into the candidate's: sums over heads of conj(r) c, by pair.
class Turns {
 public:
  Turns(const Sides& sides, const Rotation& rotation, std::size_t row)
      : rotation_(rotation), sums_(rotation.pairs) {
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      for (std::size_t head = 0; head < rotation.heads; ++head) {
        const std::size_t at = rotation.place(row, head, k);
        sums_[k] += std::conj(rotation.pair_at(sides.reference.data, at)) *
                    rotation.pair_at(sides.candidate.data, at);
      }
      most_ += std::abs(sums_[k]);
    }
  }
  // At most most().
  [[nodiscard]] double agreement(double offset) const {
    double total = 0.0;
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      total += (sums_[k] * std::polar(1.0, -offset * rotation_.frequencies[k])).real();
    }
    return total;
  }
  [[nodiscard]] double most() const { return most_; }

  // The whole number of positions that turns r into c best; `last` is tried first.
  [[nodiscard]] double best_offset(double last) const {
    constexpr double kClose = 0.999;
    if (agreement(last) >= kClose * most_) {
      return last;
    }
    double best = 0.0;
    double highest = agreement(0.0);
    const auto tokens = static_cast<double>(rotation_.tokens);
    for (double offset = -tokens; offset <= tokens; offset += 1.0) {
      if (const double found = agreement(offset); found > highest) {
        highest = found;
        best = offset;
      }
    }
    return best;
  }

 private:
  const Rotation& rotation_;
  std::vector<Pair> sums_;
  double most_ = 0.0;
};

// Whether a few rows are turned as a whole: all of them are looked at only then.
bool may_be_turned(const Sides& sides, const Rotation& rotation) {
  constexpr std::size_t kLookedAt = 16;
  constexpr double kMostly = 0.8;
  double agreed = 0.0;
  double most = 0.0;
  for (std::size_t i = 0; i < kLookedAt; ++i) {
    const Turns turns(sides, rotation, i * (rotation.rows() - 1) / (kLookedAt - 1));
    agreed += turns.agreement(turns.best_offset(0.0));
    most += turns.most();
  }
  return agreed >= kMostly * most;
}

Offsets fitted_offsets(const Sides& sides, const Rotation& rotation) {
  Offsets offsets;
  for (std::size_t row = 0; row < rotation.rows(); ++row) {
    const double last = row < rotation.samples ? 0.0 : offsets[row - rotation.samples];
    offsets.push_back(Turns(sides, rotation, row).best_offset(last));
  }
  return offsets;
}

// "tokens 16-31 by -16, tokens 32-47 by 16 and 3 more ranges", of the first sample with any.
std::string offsets_text(const Evidence& evidence,
                         const Rotation& rotation,
                         const Offsets& offsets) {
  constexpr int kShown = 4;
  std::string text;
  int ranges = 0;
  std::vector<std::int64_t> wrong;
  for (std::size_t sample = 0; sample < rotation.samples && ranges == 0; ++sample) {
    const auto at = [&](std::size_t token) { return offsets[token * rotation.samples + sample]; };
    for (std::size_t token = 0, end = 0; token < rotation.tokens; token = end) {
      for (end = token; end < rotation.tokens && at(end) == at(token); ++end) {
        if (at(token) != 0.0) {
          wrong.push_back(static_cast<std::int64_t>(end));
        }
      }
      if (at(token) != 0.0 && ++ranges <= kShown) {
        text += fmt::format(
            "{}tokens {}-{} by {:.0f}", text.empty() ? "" : ", ", token, end - 1, at(token));
      }
    }
  }
  return text + (ranges > kShown ? fmt::format(" and {} more ranges", ranges - kShown) : "") +
         holders_text(evidence, 0, wrong);
}

Hypothesis turned_by(const Sides& sides, const std::string& what, double rest) {
  return about(
      sides, Signature::kPositions, rest, what + "; turned back, " + fall_text(sides.error, rest));
}

Hypotheses other_positions(const Evidence& evidence, const Sides& sides, const Rotation& rotation) {
  if (!may_be_turned(sides, rotation)) {
    return {};
  }
  const Offsets offsets = fitted_offsets(sides, rotation);
  const double rest = distance(sides.candidate, rotation.turned(sides.reference, offsets));
  if (!evidence.explains(rest)) {
    return {};
  }
  const bool none = offsets == rotation.positions(-1.0);
  Hypothesis found =
      turned_by(sides,
                none ? "rotary positions were not applied"
                     : "rotary positions are off: " + offsets_text(evidence, rotation, offsets),
                rest);
  Offsets changes = offsets;  // along the tokens
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  found.coefficients = none ? 0.0 : static_cast<double>(changes.size());
  found.bits = none ? 1.0 : 0.0;
  return {std::move(found)};
}

// The other pairs, and bases that others use.
Hypotheses other_rules(const Evidence& evidence, const Sides& sides, const Rotation& right) {
  std::vector<Rotation> others = {{sides.shape(), !right.halves, right.base}};
  for (const double base : {100.0, 500.0, 1e3, 5e3, 1e4, 2e4, 5e4, 1e5, 5e5, 1e6, 1e7}) {
    others.emplace_back(sides.shape(), right.halves, base);
  }
  const Values plain = right.turned(sides.reference, right.positions(-1.0));
  Hypotheses found;
  for (const Rotation& other : others) {
    const double rest = distance(sides.candidate, other.turned(plain, other.positions(1.0)));
    if (evidence.explains(rest)) {
      found.push_back(turned_by(sides,
                                fmt::format("the candidate uses rotary positions with {} where the "
                                            "reference has {}",
                                            other.name(),
                                            right.name()),
                                rest));
    }
  }
  return chosen_of(2 * others.size(), std::move(found));
}

}  // namespace

Hypotheses find_positions(const Evidence& evidence, const Sides& sides) {
  constexpr double kUsualBase = 10000.0;
  const TensorId& id = evidence.finding().id;
  const auto& shape = sides.shape();
  if (id.kind != Kind::kInput || !evidence.vocabulary().is(Role::kAttention, id.path) ||
      shape.size() != 4 || shape[3] % 2 != 0 || shape[2] <= 1) {
    return {};
  }
  Hypotheses found;
  for (const bool halves : {true, false}) {
    const Rotation rotation(
        shape, halves, evidence.model_number(model_keys::kRotaryBase).value_or(kUsualBase));
    append(found, other_positions(evidence, sides, rotation));
    append(found, other_rules(evidence, sides, rotation));
  }
  return found;
}

}  // namespace ttrace
