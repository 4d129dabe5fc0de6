#include "analysis/guess/leftovers.h"

#include "analysis/align/module_path.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

struct OneSided {
  Certainty certainty = Certainty::kCertain;
  std::string evidence;
};

class Leftovers {
 public:
  Leftovers(GuessState& state, const ModulePairs& modules, const Agreements& agreements)
      : state_(state), modules_(modules), agreements_(agreements) {}

  void settle_all() {
    std::vector<std::pair<Names, UnitNumber>> rest;
    for (const Names side : kBothNames) {
      for (UnitNumber unit = 0; unit < state_.side(side).units().size(); ++unit) {
        if (!state_.pairings.has(side, unit) && !state_.pairings.is_open(side, unit)) {
          rest.emplace_back(side, unit);
        }
      }
    }
    // All are judged before any of them is decided: what is left is what could be a counterpart.
    std::vector<Pairing> decided;
    for (const auto& [side, unit] : rest) {
      if (auto options = options_by_owner(side, unit); !options.empty()) {
        state_.pairings.ask({.side = side,
                             .unit = unit,
                             .options = std::move(options),
                             .why = "it follows the parameters of its module, which are open"});
        continue;
      }
      const std::vector<UnitNumber> pool = pool_of(side, unit);
      auto reason = is_of_module(state_.side(side).unit(unit).role) ? reason_of(side, unit, pool)
                                                                    : std::nullopt;
      if (reason) {
        Pairing alone{.certainty = reason->certainty, .evidence = std::move(reason->evidence)};
        alone.of(side) = {unit};
        decided.push_back(std::move(alone));
      } else {
        ask(side, unit, pool);
      }
    }
    for (Pairing& alone : decided) {
      state_.pairings.add(std::move(alone));
    }
  }

 private:
  // The same slots of the modules whose parameters may be those of this module.
  [[nodiscard]] std::vector<std::vector<UnitNumber>> options_by_owner(Names side,
                                                                      UnitNumber unit) const {
    const Unit& own = state_.side(side).unit(unit);
    std::vector<std::vector<UnitNumber>> options;
    for (const OpenUnit& open : state_.pairings.open()) {
      if (!is_of_module(own.role) || open.side != side ||
          state_.side(side).unit(open.unit).role != UnitRole::kParameter ||
          owner_of(state_.side(side).unit(open.unit).id.path) != own.id.path) {
        continue;
      }
      for (const std::vector<UnitNumber>& parameters : open.options) {
        auto slots = slots_of_owners(other(side), own, parameters);
        if (!slots.empty() && std::ranges::find(options, slots) == options.end()) {
          options.push_back(std::move(slots));
        }
      }
    }
    return options;
  }

  // Empty if a module has no such slot, or it is decided.
  [[nodiscard]] std::vector<UnitNumber> slots_of_owners(
      Names side, const Unit& like, const std::vector<UnitNumber>& parameters) const {
    const GuessSide& own = state_.side(side);
    std::vector<UnitNumber> result;
    for (const UnitNumber parameter : parameters) {
      const GuessModule* const module = own.module(owner_of(own.unit(parameter).id.path));
      const auto& slots = like.role == UnitRole::kInput ? module->inputs : module->outputs;
      const auto found = slots.find(like.id.slot);
      if (found == slots.end() || state_.pairings.has(side, found->second)) {
        return {};
      }
      result.push_back(found->second);
    }
    return result;
  }

  std::optional<OneSided> reason_of(Names side,
                                    UnitNumber unit,
                                    const std::vector<UnitNumber>& pool) const {
    if (auto reason = is_output_there(side, unit)) {
      return reason;
    }
    if (auto reason = is_copy(side, unit)) {
      return reason;
    }
    if (pool.empty()) {
      const auto region = modules_.region_of(side, state_.side(side).unit(unit).id.path);
      return OneSided{
          is_sound(side, region.first) ? Certainty::kCertain : Certainty::kLikely,
          fmt::format("nothing that is left {} can be it",
                      region.second.empty() ? "on the other side" : "in " + region.second)};
    }
    return std::nullopt;
  }

  // An input whose counterpart is no record, for the other side's module takes the very memory that
  // another one returned.
  std::optional<OneSided> is_output_there(Names side, UnitNumber unit) const {
    const Unit& own = state_.side(side).unit(unit);
    const ModulePair* const pair =
        own.role == UnitRole::kInput ? modules_.find(side, own.id.path) : nullptr;
    if (pair == nullptr) {
      return std::nullopt;
    }
    for (const std::string& path : pair->paths.of(other(side))) {
      const GuessModule& module = *state_.side(other(side)).module(path);
      const auto taken = module.taken.find(own.id.slot);
      if (taken == module.taken.end()) {
        continue;
      }
      const TensorId& producer = taken->second;
      const Likeness likeness = likeness_of(side, own.id, producer);
      const auto output =
          state_.side(other(side)).find(UnitRole::kOutput, producer.path, producer.slot);
      const bool compared = output && state_.pairings.has(other(side), *output);
      if (likeness == Likeness::kAgree || (likeness == Likeness::kUnknown && compared)) {
        return OneSided{likeness == Likeness::kAgree ? Certainty::kCertain : Certainty::kLikely,
                        fmt::format("{} takes the output of {} as it is", path, producer.path)};
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] Likeness likeness_of(Names side, const TensorId& own, const TensorId& other) const {
    if (!state_.comparable) {
      return Likeness::kUnknown;
    }
    return side == Names::kReference ? agreements_.of(own, other).likeness
                                     : agreements_.of(other, own).likeness;
  }

  [[nodiscard]] bool have_same_numbers(Names side,
                                       const TensorId& own,
                                       const TensorId& other) const {
    return side == Names::kReference ? agreements_.have_same_numbers(own, other)
                                     : agreements_.have_same_numbers(other, own);
  }

  // The same numbers as a tensor of the same program that is compared.
  std::optional<OneSided> is_copy(Names side, UnitNumber unit) const {
    const GuessSide& own = state_.side(side);
    const ValueSummary& summary = own.summary(own.unit(unit).id);
    if (!summary.varies) {
      return std::nullopt;
    }
    for (const Pairing& pairing : state_.pairings.all()) {
      for (const UnitNumber compared : pairing.of(side)) {
        const bool possible = !pairing.is_one_sided() && is_of_module(own.unit(compared).role) &&
                              std::abs(own.summary(own.unit(compared).id).norm - summary.norm) <=
                                  kOtherOrder * summary.norm;
        if (possible && is_same(*own.values(unit), *own.values(compared))) {
          return OneSided{Certainty::kCertain,
                          fmt::format("the same numbers as the {} of {}, which is compared",
                                      name_of(own.unit(compared).id.kind),
                                      own.unit(compared).id.path)};
        }
      }
    }
    return std::nullopt;
  }

  [[nodiscard]] static bool is_same(const MergeResult& one, const MergeResult& two) {
    return std::ranges::any_of(arrangements(one.shape, two.shape), [&](const Arrangement& how) {
      return how.is_same() ? relative_distance(one, two) == 0.0
                           : relative_distance(to_candidate(one, how), two) == 0.0;
    });
  }

  // What could be its counterpart: of as many numbers, in the same place, and not known to differ.
  [[nodiscard]] std::vector<UnitNumber> pool_of(Names side, UnitNumber unit) const {
    const Unit& own = state_.side(side).unit(unit);
    const auto region = modules_.region_of(side, own.id.path);
    const GuessSide& others = state_.side(other(side));
    std::vector<UnitNumber> pool;
    for (UnitNumber number = 0; number < others.units().size(); ++number) {
      const Unit& one = others.unit(number);
      const bool possible = one.role == own.role && !state_.pairings.has(other(side), number) &&
                            element_count(one.shape) == element_count(own.shape) &&
                            lies_in(one.id.path, region.second);
      if (possible && !(is_sound(side, region.first) &&
                        likeness_of(side, own.id, one.id) == Likeness::kDiffer &&
                        !have_same_numbers(side, own.id, one.id))) {
        pool.push_back(number);
      }
    }
    return pool;
  }

  // Whether the values in and around the module are those of the other program, so that a
  // difference within shows that two tensors do not belong together.
  [[nodiscard]] bool is_sound(Names side, const std::string& region) const {
    if (!state_.comparable || region.empty()) {
      return state_.comparable && !state_.differs;
    }
    const GuessModule& module = *state_.side(side).module(region);
    return !module.outputs.empty() && std::ranges::all_of(module.outputs, [&](const auto& output) {
      const Pairing* const pairing = state_.pairings.find(side, output.second);
      return pairing != nullptr && pairing->error.has_value();
    });
  }

  void ask(Names side, UnitNumber unit, const std::vector<UnitNumber>& pool) {
    OpenUnit open{.side = side, .unit = unit, .options = {}, .why = {}};
    bool reordered = false;
    for (const UnitNumber option : pool) {
      open.options.push_back({option});
      reordered = reordered || (state_.comparable &&
                                have_same_numbers(side,
                                                  state_.side(side).unit(unit).id,
                                                  state_.side(other(side)).unit(option).id));
    }
    const bool agrees = std::ranges::any_of(pool, [&](UnitNumber option) {
      return likeness_of(side,
                         state_.side(side).unit(unit).id,
                         state_.side(other(side)).unit(option).id) == Likeness::kAgree;
    });
    open.why = pool.empty()        ? "nothing on the other side is like it"
               : agrees            ? "several tensors have its values"
               : reordered         ? "it holds the same numbers in another order"
               : state_.comparable ? "it has a shape that fits, and other values"
                                   : "shapes and places allow it; equal start weights decide";
    state_.pairings.ask(std::move(open));
  }

  GuessState& state_;
  const ModulePairs& modules_;
  const Agreements& agreements_;
};

}  // namespace

void settle_leftovers(GuessState& state, const ModulePairs& modules, const Agreements& agreements) {
  Leftovers(state, modules, agreements).settle_all();
}

}  // namespace ttrace
