#include "analysis/guess/activations.h"

#include "analysis/align/module_path.h"
#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

constexpr UnitRole kRoles[] = {UnitRole::kInput, UnitRole::kOutput};

const std::map<int, UnitNumber>& slots_of(const GuessModule& module, UnitRole role) {
  return role == UnitRole::kInput ? module.inputs : module.outputs;
}

class Activations {
 public:
  Activations(GuessState& state, const ModulePairs& modules, const Agreements& agreements)
      : state_(state), modules_(modules), agreements_(agreements) {}

  void pair_all() {
    for (const ModulePair& pair : modules_.all()) {
      if (pair.paths.reference.size() == 1 && pair.paths.candidate.size() == 1) {
        pair_slots(pair);
      } else {
        pair_parts(pair);
      }
    }
    pair_differing();
    if (state_.comparable) {
      pair_by_value_alone();
    }
    pair_named(UnitRole::kData);
    pair_named(UnitRole::kLoss);
  }

 private:
  // Slots of two modules whose values differ, to be looked at again once all others are known.
  struct Differing {
    const ModulePair* pair = nullptr;
    UnitRole role = UnitRole::kOutput;
    int slot = 0;
    UnitNumber reference = 0;
    UnitNumber candidate = 0;
  };
  // Modules of all layers, role and slot.
  using SlotClass = std::tuple<std::string, std::string, UnitRole, int>;

  [[nodiscard]] static SlotClass class_of(const Differing& slot) {
    return {pattern_of(slot.pair->paths.reference.front()),
            pattern_of(slot.pair->paths.candidate.front()),
            slot.role,
            slot.slot};
  }

  void add(UnitNumber reference,
           UnitNumber candidate,
           Arrangement how,
           Certainty certainty,
           std::string evidence,
           std::optional<double> error = {}) {
    if (!state_.pairings.has(Names::kReference, reference) &&
        !state_.pairings.has(Names::kCandidate, candidate)) {
      state_.pairings.add({.reference = {reference},
                           .candidate = {candidate},
                           .dims = std::move(how),
                           .certainty = certainty,
                           .evidence = std::move(evidence),
                           .error = error});
    }
  }

  void add_agreeing(UnitNumber reference,
                    UnitNumber candidate,
                    const ActivationMatch& agreement,
                    std::string evidence) {
    add(reference,
        candidate,
        agreement.how,
        Certainty::kCertain,
        std::move(evidence),
        agreement.error);
  }

  [[nodiscard]] ActivationMatch agreement_of(UnitNumber reference, UnitNumber candidate) const {
    return agreements_.of(state_.reference.unit(reference).id, state_.candidate.unit(candidate).id);
  }

  void pair_slots(const ModulePair& pair) {
    const GuessModule& ours = *state_.reference.module(pair.paths.reference.front());
    const GuessModule& theirs = *state_.candidate.module(pair.paths.candidate.front());
    for (const UnitRole role : kRoles) {
      for (const auto& [slot, left] : slots_of(ours, role)) {
        const auto right = slots_of(theirs, role).find(slot);
        if (right != slots_of(theirs, role).end()) {
          pair_slot({&pair, role, slot, left, right->second});
        }
      }
      pair_other_slots(slots_of(ours, role), slots_of(theirs, role));
    }
  }

  void pair_slot(const Differing& slot) {
    const Unit& left = state_.reference.unit(slot.reference);
    const Unit& right = state_.candidate.unit(slot.candidate);
    const ActivationMatch agreement = agreements_.of(left.id, right.id);
    if (state_.comparable && agreement.likeness == Likeness::kAgree) {
      ++agreeing_[class_of(slot)];
      add_agreeing(slot.reference, slot.candidate, agreement, "equal values but for round-off");
    } else if (state_.comparable && agreement.likeness == Likeness::kDiffer) {
      differing_.push_back(slot);
    } else if (auto how = agreements_.by_shape(left, right)) {
      add(slot.reference,
          slot.candidate,
          std::move(*how),
          Certainty::kLikely,
          slot.pair->evidence + ", and a shape that fits");
    }
  }

  // Slots that stand elsewhere, by value.
  void pair_other_slots(const std::map<int, UnitNumber>& ours,
                        const std::map<int, UnitNumber>& theirs) {
    for (const auto& [slot, left] : ours) {
      for (const auto& [other_slot, right] : theirs) {
        const ActivationMatch agreement = agreement_of(left, right);
        if (state_.comparable && slot != other_slot && agreement.likeness == Likeness::kAgree) {
          add_agreeing(left, right, agreement, "equal values but for round-off, in another slot");
        }
      }
    }
  }

  // Values that differ between modules that belong together: the tensors do so too if it is so in
  // other layers, or if the modules have equal parameters. A check will report them.
  void pair_differing() {
    state_.differs = !differing_.empty();
    for (const Differing& slot : differing_) {
      const auto votes = agreeing_.find(class_of(slot));
      const bool by_parameters =
          slot.pair->by_parameters && slot.pair->certainty == Certainty::kCertain;
      const Unit& left = state_.reference.unit(slot.reference);
      const Unit& right = state_.candidate.unit(slot.candidate);
      auto how = agreements_.by_shape(left, right);
      if (how && (votes != agreeing_.end() || by_parameters)) {
        add(slot.reference,
            slot.candidate,
            std::move(*how),
            Certainty::kLikely,
            votes != agreeing_.end()
                ? fmt::format("as in {}; the values differ here",
                              counted(votes->second, "other layer"))
                : std::string("modules with equal parameters; the values differ"));
      }
    }
  }

  void pair_parts(const ModulePair& pair) {
    const Names parts = pair.paths.reference.size() > 1 ? Names::kReference : Names::kCandidate;
    for (const UnitRole role : kRoles) {
      Pairing pairing{.fusion = pair.fusion};
      for (const Names side : kBothNames) {
        for (const std::string& path : pair.paths.of(side)) {
          const auto& slots = slots_of(*state_.side(side).module(path), role);
          if (slots.contains(0) && !state_.pairings.has(side, slots.at(0))) {
            pairing.of(side).push_back(slots.at(0));
          }
        }
      }
      if (pairing.of(parts).size() != pair.paths.of(parts).size() ||
          pairing.of(other(parts)).size() != 1) {
        continue;
      }
      if (role == UnitRole::kInput ? fits_inputs(pairing, parts) : fits_outputs(pairing, parts)) {
        pairing.certainty = pairing.error ? Certainty::kCertain : Certainty::kLikely;
        pairing.evidence = pairing.error ? "equal values but for round-off" : pair.evidence;
        state_.pairings.add(std::move(pairing));
      }
    }
  }

  // Every part takes what the whole takes.
  bool fits_inputs(Pairing& pairing, Names parts) const {
    for (const UnitNumber part : pairing.of(parts)) {
      const UnitNumber whole = pairing.of(other(parts)).front();
      const Unit& left = state_.reference.unit(parts == Names::kReference ? part : whole);
      const Unit& right = state_.candidate.unit(parts == Names::kReference ? whole : part);
      const ActivationMatch agreement = agreements_.of(left.id, right.id);
      if (state_.comparable && agreement.likeness == Likeness::kAgree) {
        pairing.error = std::max(pairing.error.value_or(0.0), agreement.error);
        pairing.dims = agreement.how;
      } else if (auto how = agreements_.by_shape(left, right); how && !state_.comparable) {
        pairing.dims = *how;
      } else {
        return false;
      }
    }
    return true;
  }

  bool fits_outputs(Pairing& pairing, Names parts) const {
    const std::vector<TensorId> left = state_.reference.ids(pairing.reference);
    const std::vector<TensorId> right = state_.candidate.ids(pairing.candidate);
    const double limit =
        round_off(state_.reference.type_of(left.front()), state_.candidate.type_of(right.front()));
    for (const Arrangement& how : arrangements_of_parts(pairing, parts)) {
      const double error = distance_of(state_, left, right, pairing.fusion, how);
      if (!state_.comparable || error <= limit) {
        pairing.dims = how;
        pairing.error = state_.comparable ? std::optional(error) : std::nullopt;
        return true;
      }
    }
    return false;
  }

  // Parts and whole differ in the last dimension alone.
  [[nodiscard]] std::vector<Arrangement> arrangements_of_parts(const Pairing& pairing,
                                                               Names parts) const {
    const auto& part = state_.side(parts).unit(pairing.of(parts).front()).shape;
    auto whole = state_.side(other(parts)).unit(pairing.of(other(parts)).front()).shape;
    if (part.empty() || whole.empty()) {
      return {};
    }
    whole.back() = part.back();
    return parts == Names::kReference ? arrangements(part, whole) : arrangements(whole, part);
  }

  // Values, and gradients where both have them.
  [[nodiscard]] bool agree(UnitNumber reference, UnitNumber candidate) const {
    if (agreement_of(reference, candidate).likeness != Likeness::kAgree) {
      return false;
    }
    for (const TensorId& left : state_.reference.gradients(reference)) {
      for (const TensorId& right : state_.candidate.gradients(candidate)) {
        if (agreements_.of(left, right).likeness == Likeness::kDiffer) {
          return false;
        }
      }
    }
    return true;
  }

  // Whether these are names of one tensor: the same numbers, and the same gradients.
  [[nodiscard]] bool are_one(Names side, const std::vector<UnitNumber>& units) const {
    const GuessSide& own = state_.side(side);
    const auto same = [&](const TensorId& one, const TensorId& two) {
      const TensorValues left = own.values(one);
      const TensorValues right = own.values(two);
      return left != nullptr && right != nullptr && relative_distance(*left, *right) == 0.0;
    };
    return std::ranges::all_of(units, [&](UnitNumber unit) {
      const auto mine = own.gradients(unit);
      const auto first = own.gradients(units.front());
      return same(own.unit(unit).id, own.unit(units.front()).id) &&
             std::ranges::equal(mine, first, same);
    });
  }

  [[nodiscard]] bool is_open_activation(Names side, UnitNumber unit) const {
    return is_of_module(state_.side(side).unit(unit).role) && !state_.pairings.has(side, unit);
  }

  [[nodiscard]] std::vector<UnitNumber> outermost_first(Names side,
                                                        std::vector<UnitNumber> units) const {
    std::ranges::stable_sort(units, {}, [&](UnitNumber unit) {
      return path_parts(state_.side(side).unit(unit).id.path).size();
    });
    return units;
  }

  // Tensors of one role that agree with each other, and with no other tensor. One that a program
  // has under several names is still one.
  void pair_by_value_alone() {
    std::map<UnitNumber, std::vector<UnitNumber>> rights;
    std::map<UnitNumber, std::vector<UnitNumber>> lefts;
    for (UnitNumber left = 0; left < state_.reference.units().size(); ++left) {
      for (UnitNumber right = 0; right < state_.candidate.units().size(); ++right) {
        if (is_open_activation(Names::kReference, left) &&
            is_open_activation(Names::kCandidate, right) &&
            state_.reference.unit(left).role == state_.candidate.unit(right).role &&
            agree(left, right)) {
          rights[left].push_back(right);
          lefts[right].push_back(left);
        }
      }
    }
    for (const auto& [first, theirs] : rights) {
      const std::vector<UnitNumber>& ours = lefts.at(theirs.front());
      const bool closed =
          std::ranges::all_of(ours, [&](UnitNumber one) { return rights.at(one) == theirs; }) &&
          std::ranges::all_of(theirs, [&](UnitNumber one) { return lefts.at(one) == ours; });
      if (!closed || !are_one(Names::kReference, ours) || !are_one(Names::kCandidate, theirs)) {
        continue;
      }
      const auto names = outermost_first(Names::kReference, ours);
      const auto other_names = outermost_first(Names::kCandidate, theirs);
      for (std::size_t i = 0; i < std::min(names.size(), other_names.size()); ++i) {
        add_agreeing(names[i],
                     other_names[i],
                     agreement_of(names[i], other_names[i]),
                     "equal values, which no other tensor has");
      }
    }
  }

  // Data and losses: those of one name, or of equal values that nothing else has.
  void pair_named(UnitRole role) {
    for (UnitNumber left = 0; left < state_.reference.units().size(); ++left) {
      const Unit& ours = state_.reference.unit(left);
      const auto right = ours.role == role ? state_.candidate.find(role, ours.id.path, ours.id.slot)
                                           : std::nullopt;
      if (right && !arrangements(ours.shape, state_.candidate.unit(*right).shape).empty()) {
        const ActivationMatch agreement = agreement_of(left, *right);
        if (agreement.likeness == Likeness::kAgree) {
          add_agreeing(left, *right, agreement, "the same name and equal values");
        } else {
          add(left, *right, {}, Certainty::kLikely, "the same name");
        }
      }
    }
    pair_equal_data(role);
  }

  void pair_equal_data(UnitRole role) {
    std::map<UnitNumber, std::vector<UnitNumber>> equal;
    std::map<UnitNumber, int> counts;
    for (UnitNumber left = 0; left < state_.reference.units().size(); ++left) {
      for (UnitNumber right = 0; right < state_.candidate.units().size(); ++right) {
        if (state_.reference.unit(left).role == role && state_.candidate.unit(right).role == role &&
            !state_.pairings.has(Names::kReference, left) &&
            !state_.pairings.has(Names::kCandidate, right) &&
            agreement_of(left, right).likeness == Likeness::kAgree) {
          equal[left].push_back(right);
          ++counts[right];
        }
      }
    }
    for (const auto& [left, rights] : equal) {
      if (rights.size() == 1 && counts[rights.front()] == 1) {
        add_agreeing(left, rights.front(), agreement_of(left, rights.front()), "equal values");
      }
    }
  }

  GuessState& state_;
  const ModulePairs& modules_;
  const Agreements& agreements_;
  std::vector<Differing> differing_;
  std::map<SlotClass, int> agreeing_;
};

}  // namespace

void pair_activations(GuessState& state, const ModulePairs& modules, const Agreements& agreements) {
  Activations(state, modules, agreements).pair_all();
}

}  // namespace ttrace
