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

}  // namespace ttrace
