#include "fuzz_layouts/generate.h"

#include <ttrace/error.h>

#include <random>

namespace ttrace::fuzz_layouts {
namespace {

constexpr int kModelsPerLayout = 50;
constexpr int kLayouts = 20000;
constexpr int kOptionalPercent = 30;  // in which an optional field is not at its simplest value

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  // 0 ... sides - 1. The standard's distributions differ between libraries.
  [[nodiscard]] std::size_t roll(std::size_t sides) { return engine_() % sides; }

 private:
  std::mt19937_64 engine_;
};

void choose(const Field& field, Dice& dice, Case& layout) {
  const bool stays = field.optional && dice.roll(100) >= kOptionalPercent;
  const std::size_t choice = stays ? 0 : dice.roll(field.choices.size() + (field.optional ? 0 : 1));
  if (stays) {
    layout.*field.value = field.simplest;
  } else if (field.optional) {
    layout.*field.value = field.choices[choice];
  } else {
    layout.*field.value = choice == 0 ? field.simplest : field.choices[choice - 1];
  }
}

void choose_all(bool axes, bool layer_dp, Dice& dice, Case& layout) {
  for (const Field& field : fields()) {
    if (field.axis == axes && (!field.on_request || layer_dp)) {
      choose(field, dice, layout);
    }
  }
}

std::vector<Feature> features_of(const std::string& precision) {
  std::vector<Feature> possible;
  for (const Feature& feature : features()) {
    if (feature.can_be_on(precision)) {
      possible.push_back(feature);
    }
  }
  return possible;
}

}  // namespace

Case generate(std::uint64_t seed, int index, const std::string& precision, bool layer_dp) {
  Dice dice(seed * 1'000'003 + static_cast<std::uint64_t>(index));
  const std::vector<Feature> wanted = features_of(precision);
  const Feature& feature = wanted[static_cast<std::size_t>(index) % wanted.size()];
  Case layout;
  layout.precision = precision;
  layout.seed = 1 + static_cast<int>(dice.roll(1000));
  // Axes first and models for them, so that layouts which fit few models are not rare.
  for (int attempt = 0; attempt < kLayouts; ++attempt) {
    choose_all(true, layer_dp, dice, layout);
    for (int model = 0; model < kModelsPerLayout; ++model) {
      choose_all(false, layer_dp, dice, layout);
      const Case candidate = without_idle_features(layout);
      const bool is_wanted = layer_dp ? candidate.layer_dp != 0 : feature.on(candidate);
      if (is_wanted && why_impossible(candidate).empty()) {
        return candidate;
      }
    }
  }
  TTRACE_THROW(InternalError, "no case with `", feature.name, "` was found; its choices clash");
}

}  // namespace ttrace::fuzz_layouts
