// The measurements to make: which mutants of megatron_mini, how large, where, in which precision,
// and the goal of each key of docs/figures/roc.json.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "support/derived_config.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::roc {

// Detectors in addition to the tiers, which have their names in a report: all of them together, and
// the bound from noise passes without forced passes, which is all that --no-forced leaves.
inline constexpr const char* kAnyTier = "any";
inline constexpr const char* kWithoutForced = "T2";
// The same detector where any tensor of the mutated operator counts: "T1@operator".
[[nodiscard]] std::string at_operator(const std::string& detector);

// A figure: the smallest magnitude found in all fresh batches, the worst over its mutants, over
// layers and over weights.
struct Key {
  std::string name;  // "bf16_t1_operator_scale"
  std::string precision;
  std::string detector;              // "T1", kWithoutForced, kAnyTier
  std::vector<std::string> mutants;  // of megatron_mini --mutant
  double goal = 0.0;                 // the figure should be this or less
  // What the quick plan asks for of its first mutant, instead of the goal: the bound there is 1.5
  // to 2.5 times smaller, so that a bound that grows by half a decade fails. 0: not in that plan.
  double quick = 0.0;
};

[[nodiscard]] const std::vector<Key>& all_keys();

enum class Weights : std::uint8_t { kInit, kTrained };
// "init", "trained"
[[nodiscard]] std::string name_of(Weights weights);

// One mutant at one place, at all magnitudes.
struct Series {
  std::string precision;
  Weights weights = Weights::kInit;
  std::string mutant;
  std::optional<int> layer;  // none for what concerns all of them

  auto operator<=>(const Series&) const = default;
};

// Where a find counts: regular expressions for whole ids. Both are empty for clean runs, where
// every place counts.
struct Places {
  std::string own;        // what the mutant multiplies; of a scale inside an operator all it makes
  std::string operator_;  // what the operator makes that it is in, gradients included
};
[[nodiscard]] Places places_of(const Series& series);

// Everything that a reference depends on.
struct Setting {
  std::string precision;
  Weights weights = Weights::kInit;
  int seed = 1;  // of the batch, and of what weights start from

  auto operator<=>(const Setting&) const = default;
};

// A candidate without a mutant.
struct CleanRun {
  std::size_t setting = 0;
  std::string layout;  // options of megatron_mini
};

struct Plan {
  std::vector<Key> keys = {};
  std::vector<Series> series = {};     // each once, whichever keys need it
  std::vector<Setting> settings = {};  // those of mutants, then more
  std::vector<CleanRun> cleans = {};  // first those of `layout`, one for every setting, then others
  std::vector<int> seeds = {};        // of every series
  // By mutant, ascending; half decades where a mutant is not here.
  std::map<std::string, std::vector<double>> magnitudes = {};
  testing::ConfigChanges config = {};  // what differs from examples/tiny.yaml
  std::string layout = {};             // options of megatron_mini
  int noise = 5;                       // passes
  int training_steps = 300;            // of the trained weights

  [[nodiscard]] bool needs_training() const;
};

struct Choice {
  bool quick = false;                    // the keys that have a quick figure, one place, one batch
  std::optional<std::string> keys = {};  // regular expression found in a key's name
  int seeds = 4;
};

// If all keys are chosen, there are enough clean runs to state a rate of alarms: 300 in BF16, 100
// in FP32 and in FP8, also with other seeds and layouts than the mutants'. Throws UsageError for an
// invalid expression, or one that matches no key.
[[nodiscard]] Plan make_plan(const Choice& choice);

// Ascending half decades up to 1, from where nothing is found in this precision.
[[nodiscard]] std::vector<double> half_decades(const std::string& precision);
[[nodiscard]] std::vector<double> magnitudes_of(const Plan& plan, const Series& series);

// "row, layer 2, bf16, trained"
[[nodiscard]] std::string describe(const Series& series);
[[nodiscard]] std::string describe(const Setting& setting);

}  // namespace ttrace::roc
