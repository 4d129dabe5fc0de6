#include "fuzz_layouts/shrink.h"

#include <algorithm>
#include <set>

namespace ttrace::fuzz_layouts {
namespace {

// Values of the field that are simpler than `value`, simplest first.
std::vector<int> simpler(const Field& field, int value) {
  std::vector<int> values;
  if (value == field.simplest) {
    return values;
  }
  values.push_back(field.simplest);
  const auto own = std::find(field.choices.begin(), field.choices.end(), value);
  values.insert(values.end(), field.choices.begin(), own);
  return values;
}

}  // namespace

Case shrink(const Case& failing, const std::function<bool(const Case&)>& fails, int tries) {
  Case best = failing;
  std::set<Case> asked;
  bool changed = true;
  const auto takes = [&](const Case& simpler_case) {
    if (simpler_case == best || !why_impossible(simpler_case).empty() || tries <= 0 ||
        !asked.insert(simpler_case).second) {
      return false;
    }
    --tries;
    return fails(simpler_case);
  };
  while (changed && tries > 0) {
    changed = false;
    for (const Field& field : fields()) {
      for (const int value : simpler(field, best.*field.value)) {
        Case next = best;
        next.*field.value = value;
        next = without_idle_features(next);
        if (takes(next)) {
          best = next;
          changed = true;
          break;
        }
      }
    }
  }
  return best;
}

}  // namespace ttrace::fuzz_layouts
