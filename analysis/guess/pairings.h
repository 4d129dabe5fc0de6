// What the guess holds for the same in both programs, and how sure it is.
//
// Thread-safety: plain values; one thread at a time.
#pragma once

#include "analysis/findings/names.h"
#include "analysis/guess/arrangement.h"
#include "analysis/guess/data_flow.h"
#include "analysis/guess/side.h"
#include "analysis/rename/rename_map.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

enum class Certainty : std::uint8_t {
  kCertain,  // the values agree, and nothing else has them
  kLikely,   // no value says it, but nothing else fits
};

// "certain", "likely".
[[nodiscard]] std::string_view name_of(Certainty certainty);

// One unit on each side; or one on one side and its parts on the other; or, where one side is
// empty, a unit that only one program has.
struct Pairing {
  std::vector<UnitNumber> reference = {};
  std::vector<UnitNumber> candidate = {};
  Fusion fusion = {};
  Arrangement dims = {};
  Certainty certainty = Certainty::kCertain;
  std::string evidence = {};         // "equal values"
  std::optional<double> error = {};  // relative, of values that agree but for round-off

  [[nodiscard]] const std::vector<UnitNumber>& of(Names side) const {
    return side == Names::kReference ? reference : candidate;
  }
  [[nodiscard]] std::vector<UnitNumber>& of(Names side) {
    return side == Names::kReference ? reference : candidate;
  }
  [[nodiscard]] bool has_parts() const { return reference.size() + candidate.size() > 2; }
  [[nodiscard]] bool is_one_sided() const { return reference.empty() || candidate.empty(); }
};

// A unit that was not decided, and what it may be.
struct OpenUnit {
  Names side = Names::kReference;
  UnitNumber unit = 0;
  std::vector<std::vector<UnitNumber>> options;  // units of the other side, each alone or as parts
  std::string why;                               // what would decide
};

class Pairings {
 public:
  // Requires: none of its units is taken.
  void add(Pairing pairing);
  // Null if it is not decided.
  [[nodiscard]] const Pairing* find(Names side, UnitNumber unit) const;
  [[nodiscard]] bool has(Names side, UnitNumber unit) const { return find(side, unit) != nullptr; }
  // The unit of the other side, if it is one and no parts.
  [[nodiscard]] std::optional<UnitNumber> partner(Names side, UnitNumber unit) const;
  [[nodiscard]] std::span<const Pairing> all() const { return all_; }

  // The last word on a unit that stays undecided.
  void ask(OpenUnit open);
  [[nodiscard]] std::span<const OpenUnit> open() const { return open_; }
  [[nodiscard]] bool is_open(Names side, UnitNumber unit) const;

 private:
  std::vector<Pairing> all_;
  std::vector<OpenUnit> open_;
  std::map<std::pair<Names, UnitNumber>, std::size_t> places_;
};

// Both traces and what is known of them.
struct GuessState {
  const GuessSide& reference;
  const GuessSide& candidate;
  Pairings pairings = {};
  bool comparable = false;  // the programs ran with the same weights and data
  bool differs = false;     // and values of modules that belong together differ nevertheless

  // Of both sides; made when it is first asked for.
  mutable Both<std::optional<DataFlow>> flows = {};

  [[nodiscard]] const GuessSide& side(Names names) const {
    return names == Names::kReference ? reference : candidate;
  }
  [[nodiscard]] const DataFlow& flow(Names names) const {
    auto& own = flows.of(names);
    return own ? *own : own.emplace(side(names));
  }
};

// Relative distance of two tensors, or of a tensor and its parts, after `how` and `fusion`;
// infinite if the values are not known or do not fit. `first` and `second` are tensors of one kind.
[[nodiscard]] double distance_of(const GuessState& state,
                                 std::span<const TensorId> reference,
                                 std::span<const TensorId> candidate,
                                 const Fusion& fusion,
                                 const Arrangement& how);
[[nodiscard]] inline double distance_of(const GuessState& state,
                                        const TensorId& reference,
                                        const TensorId& candidate,
                                        const Arrangement& how) {
  return distance_of(state, std::span(&reference, 1), std::span(&candidate, 1), {}, how);
}

// How far tensors of these types may differ by round-off, as a share of their norm.
[[nodiscard]] double round_off(ElementType reference, ElementType candidate);

}  // namespace ttrace
