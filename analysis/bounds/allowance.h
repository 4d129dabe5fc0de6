// A row of the ledger: a component of the error model, or an excuse; see ledger.h.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/findings/term.h"

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttrace {

enum class Allowance : std::uint8_t {
  // Components: what errors of right programs are made of, beside the noise of this run.
  kStorage,
  kUpdateFlips,
  kAlikeMicrobatches,
  kInheritedNoise,
  kScaleNoise,
  kOtherGrid,
  kIrreproducible,
  kClassDefault,
  kRoundedProducts,
  kOperatorRounding,
  kRankSums,
  kClippingNorm,
  kFactorRounding,
  kOwnSpread,
  kGoldenRounding,
  kOrderOfSums,
  // Excuses: questions that are not asked, and answers that are no finding.
  kNothingButNoise,
  kChoices,
  kAddedUp,
  kBehindFindings,
  kOverflows,
  kHarmlessScales,
};

// Which traces a row needs to act.
enum class AllowanceScope : std::uint8_t { kNoise, kNoNoise, kForced, kGolden, kAny };

struct LedgerRow {
  Allowance allowance;
  AllowanceScope scope;
  std::string_view name;    // "update-flips"
  std::string_view what;    // one sentence
  std::string_view source;  // or measurement
  // A clean run that alarms without it, as a command; or the unit test of a case that was measured.
  std::string_view witness;
};

inline constexpr std::size_t kAllowances = static_cast<std::size_t>(Allowance::kHarmlessScales) + 1;

// Nothing for what the passes of this run show, which cannot be switched off.
[[nodiscard]] constexpr std::optional<Allowance> allowance_of(Component component) {
  switch (component) {
    case Component::kNoise:
    case Component::kNative:
      return std::nullopt;
    case Component::kIrreproducible:
      return Allowance::kIrreproducible;
    case Component::kAlikeMicrobatches:
      return Allowance::kAlikeMicrobatches;
    case Component::kUpdateFlips:
      return Allowance::kUpdateFlips;
    case Component::kInheritedNoise:
      return Allowance::kInheritedNoise;
    case Component::kScaleNoise:
      return Allowance::kScaleNoise;
    case Component::kOtherGrid:
      return Allowance::kOtherGrid;
    case Component::kStorage:
      return Allowance::kStorage;
    case Component::kClassDefault:
      return Allowance::kClassDefault;
    case Component::kOperatorRounding:
      return Allowance::kOperatorRounding;
    case Component::kRankSums:
      return Allowance::kRankSums;
    case Component::kClippingNorm:
      return Allowance::kClippingNorm;
  }
  return std::nullopt;
}

// Which rows are in force.
class Allowances {
 public:
  [[nodiscard]] bool has(Allowance allowance) const {
    return !removed_.test(static_cast<std::size_t>(allowance));
  }
  [[nodiscard]] bool has(Component component) const {
    const std::optional<Allowance> row = allowance_of(component);
    return !row || has(*row);
  }
  // What the row makes of a term: `value`, or 0 where the row is not in force.
  [[nodiscard]] double granted(Allowance allowance, double value) const {
    return has(allowance) ? value : 0.0;
  }
  void remove(Allowance allowance) { removed_.set(static_cast<std::size_t>(allowance)); }

 private:
  std::bitset<kAllowances> removed_;
};

}  // namespace ttrace
