// Names that are alike but for the numbers of layers: `layers.3.norm` and `h.3.ln` are what
// `layers.*.norm` and `h.*.ln` say.
//
// Thread-safety: immutable after construction; free functions without shared state.
#pragma once

#include "analysis/findings/names.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Paths that belong together: one of each side, or one and its parts, or one alone.
using PathGroup = Both<std::vector<std::string>>;

// Whether `test` holds of any path of the first group and any path of the second one on the same
// side.
template <class Test>
[[nodiscard]] bool any_pair(const PathGroup& first, const PathGroup& second, const Test& test) {
  return std::ranges::any_of(kBothNames, [&](Names side) {
    return std::ranges::any_of(first.of(side), [&](const std::string& one) {
      return std::ranges::any_of(second.of(side),
                                 [&](const std::string& two) { return test(one, two); });
    });
  });
}

// The group with stars for some of its numbers, the same ones in the same order in all its paths,
// in every way; those with more stars first, the group itself last.
[[nodiscard]] std::vector<PathGroup> generalised(const PathGroup& group);

// What the stars of a pattern stand for in a path; nothing if it does not match.
[[nodiscard]] std::optional<std::vector<std::string>> stars_in(const std::string& pattern,
                                                               const std::string& path);
[[nodiscard]] PathGroup filled(const PathGroup& pattern, const std::vector<std::string>& stars);

// What known groups say of others.
class LayerPatterns {
 public:
  explicit LayerPatterns(std::span<const PathGroup> known);

  struct Prediction {
    PathGroup group;
    std::size_t example = 0;  // number of a known group that says so
    std::size_t support = 0;  // how many do
  };
  // The group to which `path` belongs if it follows at least two known ones, and no known one
  // contradicts them; nothing if they say nothing, or different things.
  [[nodiscard]] std::optional<Prediction> predict(Names side, const std::string& path) const;

 private:
  struct Support {
    std::size_t example = 0;
    std::size_t count = 0;
    bool contradicted = false;
  };

  std::map<PathGroup, Support> patterns_;
};

// Whether the group is none that the pattern gives, but has a path that matches it.
[[nodiscard]] bool contradicts(const PathGroup& pattern, const PathGroup& group);

}  // namespace ttrace
