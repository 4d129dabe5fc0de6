#include "analysis/guess/entries.h"

#include "analysis/align/module_path.h"
#include "analysis/guess/map_says.h"
#include "analysis/guess/star_entries.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ttrace {
namespace {

constexpr auto kParameters = "parameters";
constexpr auto kActivations = "activations";

std::string kinds_of(UnitRole role) {
  switch (role) {
    case UnitRole::kParameter:
      return kParameters;
    case UnitRole::kInput:
      return "[input, grad_input]";
    case UnitRole::kOutput:
      return "[output, grad_output]";
    case UnitRole::kData:
      return "data";
    default:
      return "loss";
  }
}

// What a unit lies in: the owner of a parameter, the module of an activation.
std::string holder_of(const Unit& unit) {
  return unit.role == UnitRole::kParameter ? owner_of(unit.id.path) : unit.id.path;
}

class EntryBuilder {
 public:
  explicit EntryBuilder(const GuessState& state) : state_(state), common_(common_dims()) {}

  MapEntries build() {
    MapEntries result;
    result.dims = common_;
    for (const Pairing& pairing : state_.pairings.all()) {
      place(pairing);
    }
    std::vector<MapEntry> entries = std::move(singles_);
    for (auto& [paths, modules] : modules_) {
      add_module(paths, modules, entries);
    }
    for (const OpenUnit& open : state_.pairings.open()) {
      entries.push_back(question(open));
    }
    result.tensors = with_stars(std::move(entries));
    return result;
  }

  // An entry for this tensor alone.
  [[nodiscard]] MapEntry single(const Pairing& pairing) const {
    MapEntry entry;
    const Unit& unit = first(pairing);
    entry.paths = paths_of(pairing, [](const Unit& one) { return one.id.path; });
    entry.words.kinds = kinds_of(unit.role);
    if (is_of_module(unit.role)) {
      const std::set<int> slots = slots_of(pairing);
      if (slots.size() > 1) {
        // Slots of the two sides differ: the path says which one is meant.
        entry.paths = paths_of(pairing, [](const Unit& one) {
          return one.id.path + "/" + std::to_string(one.id.slot);
        });
      } else {
        entry.words.slot = unit.id.slot;
      }
    }
    add_parts(pairing, entry);
    add_evidence(pairing, entry);
    add_dims(pairing, entry);
    return entry;
  }

  [[nodiscard]] MapEntry question(const OpenUnit& open) const {
    const Unit& unit = state_.side(open.side).unit(open.unit);
    MapEntry entry;
    entry.paths.of(open.side) = {unit.id.path};
    entry.paths.of(other(open.side)) = {"open." + unit.id.path};
    entry.words.kinds = kinds_of(unit.role);
    entry.words.open = true;
    if (is_of_module(unit.role)) {
      entry.words.slot = unit.id.slot;
    }
    entry.order = unit.order;
    entry.tensors = 1;
    entry.evidence = {open.why};
    for (const auto& option : open.options) {
      std::string text;
      for (const UnitNumber number : option) {
        const Unit& one = state_.side(other(open.side)).unit(number);
        text.append(text.empty() ? "" : " + ").append(pattern_of(one.id.path));
        text.append(is_of_module(one.role) ? "/" + std::to_string(one.id.slot) : "");
      }
      if (std::ranges::find(entry.options, text) == entry.options.end()) {
        entry.options.push_back(std::move(text));
      }
    }
    return entry;
  }

 private:
  // Pairings of one module on each side, or of a module and its parts.
  struct Module {
    std::vector<const Pairing*> parameters;
    std::vector<const Pairing*> activations;
  };

  [[nodiscard]] const Unit& first(const Pairing& pairing) const {
    return pairing.reference.empty() ? state_.candidate.unit(pairing.candidate.front())
                                     : state_.reference.unit(pairing.reference.front());
  }

  template <class Name>
  [[nodiscard]] PathGroup paths_of(const Pairing& pairing, const Name& name) const {
    PathGroup paths;
    for (const Names side : kBothNames) {
      for (const UnitNumber unit : pairing.of(side)) {
        paths.of(side).push_back(name(state_.side(side).unit(unit)));
      }
    }
    return paths;
  }

  // The arrangements that most activations of as many dimensions have, if it is another order.
  [[nodiscard]] std::vector<EntryDims> common_dims() const {
    std::map<std::size_t, std::map<Arrangement, int>> counts;
    for (const Pairing& pairing : state_.pairings.all()) {
      if (is_of_module(first(pairing).role) && !pairing.is_one_sided()) {
        ++counts[first(pairing).shape.size()][pairing.dims];
      }
    }
    std::vector<EntryDims> common;
    for (const auto& [rank, ways] : counts) {
      const auto most =
          std::ranges::max_element(ways, {}, [](const auto& entry) { return entry.second; });
      const Arrangement& how = most->first;
      if (!how.is_same() && how.reference.find('=') == std::string::npos &&
          how.candidate.find('=') == std::string::npos) {
        common.push_back({kActivations, how});
      }
    }
    return common;
  }

  // Whether slots and last names are the same, so that an entry for the modules covers it.
  [[nodiscard]] bool follows_its_module(const Pairing& pairing) const {
    if (pairing.is_one_sided()) {
      return false;
    }
    const Unit& one = first(pairing);
    const auto is_same = [&](Names side, UnitNumber number) {
      const Unit& unit = state_.side(side).unit(number);
      return one.role == UnitRole::kParameter
                 ? path_parts(unit.id.path).back() == path_parts(one.id.path).back() &&
                       !holder_of(unit).empty()
                 : is_of_module(one.role) && unit.id.slot == one.id.slot;
    };
    return std::ranges::all_of(kBothNames, [&](Names side) {
      return std::ranges::all_of(pairing.of(side),
                                 [&](UnitNumber unit) { return is_same(side, unit); });
    });
  }

  void place(const Pairing& pairing) {
    if (!follows_its_module(pairing)) {
      singles_.push_back(single(pairing));
      return;
    }
    Module& module = modules_[paths_of(pairing, holder_of)];
    (first(pairing).role == UnitRole::kParameter ? module.parameters : module.activations)
        .push_back(&pairing);
    for (const Names side : kBothNames) {
      for (const UnitNumber unit : pairing.of(side)) {
        groups_[{side, holder_of(state_.side(side).unit(unit))}].insert(
            paths_of(pairing, holder_of));
      }
    }
  }

  [[nodiscard]] std::set<int> slots_of(const Pairing& pairing) const {
    std::set<int> slots;
    for (const Names side : kBothNames) {
      for (const UnitNumber unit : pairing.of(side)) {
        slots.insert(state_.side(side).unit(unit).id.slot);
      }
    }
    return slots;
  }

  static void add_parts(const Pairing& pairing, MapEntry& entry) {
    if (pairing.has_parts()) {
      entry.words.groups = pairing.fusion.groups;
      entry.words.ratio = pairing.fusion.ratio;
    }
  }

  void add_evidence(const Pairing& pairing, MapEntry& entry) const {
    entry.order = entry.tensors == 0 ? first(pairing).order
                                     : std::min<std::size_t>(entry.order, first(pairing).order);
    ++entry.tensors;
    entry.certainty = std::max(entry.certainty, pairing.certainty);
    entry.evidence.insert(pairing.evidence);
    if (pairing.error) {
      entry.error = std::max(entry.error.value_or(0.0), *pairing.error);
    }
  }

  // The arrangement of the tensor, unless it is what tensors of as many dimensions have anyway.
  void add_dims(const Pairing& pairing, MapEntry& entry) const {
    const Unit& unit = first(pairing);
    if (pairing.is_one_sided()) {
      return;
    }
    const auto common = std::ranges::find_if(common_, [&](const EntryDims& dims) {
      return is_of_module(unit.role) && path_words(dims.how.reference) == unit.shape.size();
    });
    if (common != common_.end() && pairing.dims.is_same()) {
      const std::string same = words(unit.shape.size());
      entry.words.dims.insert({kinds_of(unit.role), {same, same}});
    } else if (!pairing.dims.is_same() &&
               (common == common_.end() || common->how != pairing.dims)) {
      entry.words.dims.insert({kinds_of(unit.role), pairing.dims});
    }
  }

  [[nodiscard]] static std::size_t path_words(const std::string& dims) {
    return static_cast<std::size_t>(std::ranges::count(dims, ' ')) + 1;
  }
  [[nodiscard]] static std::string words(std::size_t rank) {
    std::string text;
    for (std::size_t dim = 0; dim < rank; ++dim) {
      text.append(text.empty() ? "" : " ").append(1, static_cast<char>('a' + dim));
    }
    return text;
  }

  // Whether tensors of one kind and as many dimensions are arranged in two ways within the entry.
  [[nodiscard]] static bool is_ambiguous(const MapEntry& entry, const MapEntry& more) {
    return std::ranges::any_of(more.words.dims, [&](const EntryDims& one) {
      return std::ranges::any_of(entry.words.dims, [&](const EntryDims& two) {
        return one != two && one.kinds == two.kinds &&
               (path_words(one.how.reference) == path_words(two.how.reference) ||
                path_words(one.how.candidate) == path_words(two.how.candidate));
      });
    });
  }

  // Whether one of the modules belongs to others as well, so that the kinds must be said.
  [[nodiscard]] bool is_shared(const PathGroup& paths) const {
    return std::ranges::any_of(kBothNames, [&](Names side) {
      return std::ranges::any_of(paths.of(side), [&](const std::string& path) {
        return groups_.at({side, path}).size() > 1;
      });
    });
  }

  // Whether a module is known to take another tensor, the output of another module, than the module
  // that returns the same does: an entry for both must not say that their inputs are the same.
  [[nodiscard]] bool take_otherwise(const PathGroup& paths) const {
    if (paths.reference.size() != 1 || paths.candidate.size() != 1) {
      return false;
    }
    const GuessModule* const ours = state_.reference.module(paths.reference.front());
    const GuessModule* const theirs = state_.candidate.module(paths.candidate.front());
    return ours != nullptr && theirs != nullptr &&
           std::ranges::any_of(ours->taken, [&](const auto& taken) {
             const auto other_taken = theirs->taken.find(taken.first);
             return other_taken != theirs->taken.end() &&
                    (is_another(Names::kReference, taken.second, other_taken->second) ||
                     is_another(Names::kCandidate, other_taken->second, taken.second));
           });
  }

  // Whether the counterpart of an output is known, and holds other numbers than `claimed`.
  [[nodiscard]] bool is_another(Names side, const TensorId& output, const TensorId& claimed) const {
    const GuessSide& others = state_.side(other(side));
    const auto own = state_.side(side).find(UnitRole::kOutput, output.path, output.slot);
    const auto expected = own ? state_.pairings.partner(side, *own) : std::nullopt;
    if (!expected || others.unit(*expected).id == claimed) {
      return false;
    }
    const TensorValues left = others.values(*expected);
    const TensorValues right = others.values(claimed);
    return left == nullptr || right == nullptr || relative_distance(*left, *right) > 0.0;
  }

  void add_module(const PathGroup& paths, const Module& module, std::vector<MapEntry>& entries) {
    MapEntry entry;
    entry.paths = paths;
    std::set<UnitRole> roles;
    std::vector<const Pairing*> all = module.parameters;
    all.insert(all.end(), module.activations.begin(), module.activations.end());
    for (const Pairing* pairing : all) {
      MapEntry one = single(*pairing);
      const bool other_parts = entry.tensors > 0 && (entry.words.groups != one.words.groups ||
                                                     entry.words.ratio != one.words.ratio);
      if (other_parts || is_ambiguous(entry, one)) {
        entries.push_back(std::move(one));
        continue;
      }
      add_parts(*pairing, entry);
      add_evidence(*pairing, entry);
      add_dims(*pairing, entry);
      roles.insert(first(*pairing).role);
    }
    if (!roles.contains(UnitRole::kInput) && take_otherwise(paths)) {
      entry.words.kinds =
          roles.contains(UnitRole::kParameter)
              ? (roles.size() > 1 ? "[parameters, output, grad_output]" : kParameters)
              : kinds_of(UnitRole::kOutput);
    } else if (is_shared(paths)) {
      const bool activations = std::ranges::any_of(roles, is_of_module);
      entry.words.kinds = !roles.contains(UnitRole::kParameter)
                              ? (roles.size() > 1 ? kActivations : kinds_of(*roles.begin()))
                          : activations ? "[parameters, activations]"
                                        : kParameters;
    }
    entries.push_back(std::move(entry));
  }

  const GuessState& state_;
  std::vector<EntryDims> common_;
  std::vector<MapEntry> singles_;
  std::map<PathGroup, Module> modules_;
  std::map<std::pair<Names, std::string>, std::set<PathGroup>> groups_;
};

}  // namespace

MapEntries entries_of(const GuessState& state) {
  return EntryBuilder(state).build();
}

std::vector<MapEntry> corrections(const GuessState& state, const RenameMap& map) {
  std::vector<MapEntry> entries;
  EntryBuilder builder(state);
  for (const Pairing& pairing : state.pairings.all()) {
    if (!says(map, state, pairing)) {
      entries.push_back(builder.single(pairing));
    }
  }
  for (const OpenUnit& open : state.pairings.open()) {
    if (!leaves_open(map, state, open)) {
      entries.push_back(builder.question(open));
    }
  }
  return entries;
}

}  // namespace ttrace
