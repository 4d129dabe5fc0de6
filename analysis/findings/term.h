// The numbers that a check was decided by, each with a name of its own, and the components of the
// variance that its bound allows.
//
// Thread-safety: plain values; free functions without shared state.
#pragma once

#include <cstdint>
#include <string_view>

namespace ttrace {

// r: reference, c: candidate, m: noise pass, f and n: forced passes in a higher precision and in
// the candidate's own, g: golden pass. ||x|| is the Frobenius norm.
enum class Term : std::uint8_t {
  // Of whatever is held against a limit.
  kScale,  // of the error, or of a factor; 0: it must be equal
  kLimit,  // bound / scale
  kQ,      // value / scale
  // limit = kernel factor x root of F's quantile; see spread.h.
  kPasses,  // noise passes
  kKernelFactor,
  kFreedom,            // degrees of freedom of the error
  kFreedomOfEstimate,  // of the scale
  kByChance,           // share of right errors beyond the limit
  // Parts and factors, over all that the tensor has.
  kIsAddend,     // 1: the part is a rank's addend, against what the rank's own rows give
  kNeededLimit,  // that it would take for the factor to be within its bound
  // T1.
  kError,     // ||c - f||; of kFinite ||c - r||, overflows counted as the smallest that overflows
  kNative,    // ||n - f||
  kNorm,      // ||f||; of kTolerance that of the tolerance
  kBitEqual,  // part of the elements in which c is n
  kUnlike,    // elements that are finite in c alone, or in neither f nor n
  kFactor,    // <c, f> / <f, f>
  kNativeFactor,
  // Golden pass.
  kRho,
  kCandidateError,  // ||c - g||
  kReferenceError,  // ||r - g||
  kLeastRho,        // that passes; 0: not judged
  kLargestRho,
  kIsAsAccurate,
  // A tolerance asked for.
  kRtol,
  kAtol,
  kBeyond,  // elements that break it
  // Choices of experts.
  kTokens,
  kFlips,
  kIllegal,
};

// "largest_pass"
[[nodiscard]] std::string_view name_of(Term term);

struct TermValue {
  Term term = Term::kScale;
  double value = 0.0;
};

// A part of the squared error that right programs may have. docs/verdict_reference.md has every
// formula with its source.
enum class Component : std::uint8_t {
  // T2.
  kNoise,
  kIrreproducible,
  kAlikeMicrobatches,
  kUpdateFlips,
  kInheritedNoise,
  kScaleNoise,
  kStorage,
  kClassDefault,
  // T1.
  kNative,
  kOperatorRounding,
  kRankSums,
  kClippingNorm,
  // Both.
  kOtherGrid,
};

// Where the size of a component is from.
enum class Basis : std::uint8_t {
  kMeasured,    // in passes of this run
  kDerived,     // from formats and the placement
  kCalibrated,  // from clean runs of other programs
};

struct ComponentTraits {
  Component component;
  std::string_view name;   // for programs: "update_flips"
  std::string_view words;  // for people, with its formula
  Basis basis;
};

[[nodiscard]] const ComponentTraits& traits_of(Component component);
// "measured"
[[nodiscard]] std::string_view name_of(Basis basis);

struct ComponentValue {
  Component component = Component::kNoise;
  double squared = 0.0;  // above 0
};

}  // namespace ttrace
