// A row of the ledger of limits, and which rows are in force; see ledger.h.
//
// Thread-safety: plain values.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ttrace {

enum class Allowance : std::uint8_t {
  // What is added to the noise scale of a tensor.
  kStorageFlips,
  kScalarRounding,
  kUpdateFlips,
  kAlikeMicrobatches,
  kInheritedNoise,
  kScaleNoise,
  kScaleGrid,
  kMultipleRounding,
  kIrreproducible,
  kUntouched,
  kRoundedProducts,
  // Parts and factors.
  kFactorRounding,
  // Without noise.
  kDefaultFactor,
  kDefaultFactorOfGradients,
  kDefaultFactorOfVectors,
  kDefaultFactorOfLaterSteps,
  kOrderOfSummation,
  kAveragedInProducts,
  // Choices of experts.
  kLimitOfChoices,
  kRareChoices,
  kBehindFlips,
  // Operators.
  kRingSums,
  kBiasRounding,
  kPartsOfInputGradients,
  kRoundingFloor,
  kRoundedSums,
  kStoredAddends,
  kBucketSums,
  kUnrecordedAddends,
  kClippingNorm,
  kClippingRoundings,
  kUpdateRounding,
  kOtherGrid,
  kOtherGridCodes,
  kOtherGridParts,
  kNothingButNoise,
  kOwnSpread,
  kFewSlices,
  kNativeFactor,
  kOperatorFactorRounding,
  kPowersOfTwo,
  kHiddenChoices,
  kAddedUp,
  kOverflows,
  kBehindFindings,
  // Addends of ranks.
  kKnownFormula,
  kNativeAddends,
  // Golden pass.
  kLeastRho,
  kLeastRhoOfWeights,
  kLeastRhoOfVectors,
  kLeastRhoOfSums,
  kLargestRho,
  kLargestRhoOfGradients,
  kGoldenRoundings,
  kFewGoldenElements,
  kFirstGoldenStep,
  // What must be equal, nearly.
  kCollectiveSums,
  kNormTolerance,
  kLossTolerance,
  kFewCodes,
  kHarmlessScales,
};

// Which traces a row needs to act.
enum class AllowanceScope : std::uint8_t { kNoise, kNoNoise, kForced, kGolden, kAny };

struct LedgerRow {
  Allowance allowance;
  AllowanceScope scope;
  std::string_view name;    // "storage-flips"
  std::string_view what;    // one sentence
  std::string_view source;  // or measurement
  // A clean run that alarms without it, as a command; or the unit test of a case that was measured.
  std::string_view witness;
};

inline constexpr std::size_t kAllowances = static_cast<std::size_t>(Allowance::kHarmlessScales) + 1;

// Which rows are in force.
class Allowances {
 public:
  [[nodiscard]] bool has(Allowance allowance) const {
    return !removed_.test(static_cast<std::size_t>(allowance));
  }
  // What the row makes of a term: `value`, or `without` where the row is not in force.
  [[nodiscard]] double granted(Allowance allowance, double value, double without = 0.0) const {
    return has(allowance) ? value : without;
  }
  void remove(Allowance allowance) { removed_.set(static_cast<std::size_t>(allowance)); }

 private:
  std::bitset<kAllowances> removed_;
};

}  // namespace ttrace
