#include "analysis/guess/module_pairs.h"

#include "analysis/align/module_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

bool has_tensors(const GuessModule& module) {
  return !module.inputs.empty() || !module.outputs.empty();
}

std::string last_name(const GuessModule* module) {
  return path_parts(module->path).back();
}

std::size_t depth(const GuessModule* module) {
  return path_parts(module->path).size();
}

std::vector<std::string> owners(const GuessSide& side, const std::vector<UnitNumber>& units) {
  std::vector<std::string> paths;
  for (const UnitNumber unit : units) {
    std::string owner = owner_of(side.unit(unit).id.path);
    if (std::ranges::find(paths, owner) == paths.end()) {
      paths.push_back(std::move(owner));
    }
  }
  return paths;
}

}  // namespace

ModulePairs::ModulePairs(GuessState& state, const Agreements& agreements)
    : state_(state), agreements_(agreements) {
  pair_owners();
  decide_comparable();
  pair_containers();
  pair_by_layers();
  pair_without_parameters();
  pair_by_layers();
}

const ModulePair* ModulePairs::find(Names side, const std::string& path) const {
  const auto found = places_.find({side, path});
  return found == places_.end() ? nullptr : &pairs_[found->second];
}

std::pair<std::string, std::string> ModulePairs::region_of(Names side,
                                                           const std::string& path) const {
  for (const std::string& outer : outer_paths(path)) {
    const ModulePair* const pair = find(side, outer);
    if (pair != nullptr && pair->paths.of(other(side)).size() == 1 &&
        pair->paths.of(side).size() == 1) {
      return {outer, pair->paths.of(other(side)).front()};
    }
  }
  return {};
}

void ModulePairs::add(ModulePair pair) {
  for (const Names side : kBothNames) {
    for (const std::string& path : pair.paths.of(side)) {
      places_.emplace(std::pair(side, path), pairs_.size());
    }
  }
  pairs_.push_back(std::move(pair));
}

bool ModulePairs::is_free(Names side, const std::string& path) const {
  return find(side, path) == nullptr;
}

// Whether all parameters of the module, and of those below it, belong to these owners.
bool ModulePairs::owns_only(Names side, const std::string& path, const PathGroup& owners_) const {
  const GuessSide& own = state_.side(side);
  const GuessModule& module = *own.module(path);
  return module.all_parameters.size() == module.parameters.size() &&
         std::ranges::all_of(module.parameters, [&](UnitNumber unit) {
           const Pairing* const pairing = state_.pairings.find(side, unit);
           return pairing == nullptr ||
                  PathGroup{owners(state_.reference, pairing->reference),
                            owners(state_.candidate, pairing->candidate)} == owners_;
         });
}

std::optional<ModulePair> ModulePairs::owners_of(const Pairing& pairing) const {
  ModulePair pair{.paths = {owners(state_.reference, pairing.reference),
                            owners(state_.candidate, pairing.candidate)},
                  .fusion = pairing.fusion,
                  .certainty = pairing.certainty,
                  .evidence = "the same parameters",
                  .by_parameters = true};
  const std::size_t units = pairing.reference.size() + pairing.candidate.size();
  if (pairing.is_one_sided() ||
      pair.paths.reference.size() + pair.paths.candidate.size() != units) {
    return std::nullopt;
  }
  for (const Names side : kBothNames) {
    for (const std::string& path : pair.paths.of(side)) {
      if (path.empty() || !is_free(side, path) || !owns_only(side, path, pair.paths)) {
        return std::nullopt;
      }
    }
  }
  return outputs_fit(pair) ? std::optional(std::move(pair)) : std::nullopt;
}

// Whether the last dimensions, where the parts stand together, have the same sum on both sides.
bool ModulePairs::outputs_fit(const ModulePair& pair) const {
  Both<std::int64_t> elements;
  for (const Names side : kBothNames) {
    for (const std::string& path : pair.paths.of(side)) {
      const GuessModule& module = *state_.side(side).module(path);
      const auto output = module.outputs.find(0);
      if (output == module.outputs.end()) {
        return !has_tensors(module);
      }
      elements.of(side) += element_count(state_.side(side).unit(output->second).shape);
    }
  }
  return elements.reference == elements.candidate;
}

void ModulePairs::pair_owners() {
  for (const Pairing& pairing : state_.pairings.all()) {
    if (auto pair = owners_of(pairing)) {
      add(std::move(*pair));
    }
  }
}

void ModulePairs::decide_comparable() {
  for (const ModulePair& pair : pairs_) {
    if (pair.paths.reference.size() != 1 || pair.paths.candidate.size() != 1) {
      continue;
    }
    const auto& ours = state_.reference.module(pair.paths.reference.front())->outputs;
    const auto& theirs = state_.candidate.module(pair.paths.candidate.front())->outputs;
    state_.comparable =
        state_.comparable ||
        (ours.contains(0) && theirs.contains(0) && pair.certainty == Certainty::kCertain &&
         agreements_
                 .of(state_.reference.unit(ours.at(0)).id, state_.candidate.unit(theirs.at(0)).id)
                 .likeness == Likeness::kAgree);
  }
}

std::set<UnitNumber> ModulePairs::image(Names side, const std::set<UnitNumber>& units) const {
  std::set<UnitNumber> result;
  for (const UnitNumber unit : units) {
    if (const Pairing* const pairing = state_.pairings.find(side, unit)) {
      const auto& others = pairing->of(other(side));
      result.insert(others.begin(), others.end());
    }
    for (const OpenUnit& open : state_.pairings.open()) {
      if (open.side == side && open.unit == unit) {
        for (const auto& option : open.options) {
          result.insert(option.begin(), option.end());
        }
      }
    }
  }
  return result;
}

// Of a module with parameters of its own that are open, their options are no evidence.
bool ModulePairs::is_container(Names side, const GuessModule& module) const {
  return has_tensors(module) && !module.all_parameters.empty() &&
         std::ranges::none_of(module.parameters,
                              [&](UnitNumber unit) { return state_.pairings.is_open(side, unit); });
}

void ModulePairs::pair_containers() {
  Both<std::map<std::set<UnitNumber>, std::vector<const GuessModule*>>> containers;
  for (const Names side : kBothNames) {
    for (const auto& [path, module] : state_.side(side).modules()) {
      if (is_container(side, module)) {
        containers.of(side)[module.all_parameters].push_back(&module);
      }
    }
  }
  for (const auto& [parameters, modules] : containers.reference) {
    const std::set<UnitNumber> counterparts = image(Names::kReference, parameters);
    const auto found = containers.candidate.find(counterparts);
    if (found != containers.candidate.end() &&
        image(Names::kCandidate, counterparts) == parameters) {
      pair_chain(modules, found->second);
    }
  }
}

void ModulePairs::pair_chain(std::vector<const GuessModule*> reference,
                             std::vector<const GuessModule*> candidate) {
  std::erase_if(reference, [&](const GuessModule* module) {
    return !is_free(Names::kReference, module->path);
  });
  std::erase_if(candidate, [&](const GuessModule* module) {
    return !is_free(Names::kCandidate, module->path);
  });
  if (state_.comparable) {
    pair_best(reference, candidate, "the same parameters within");
    return;
  }
  std::ranges::stable_sort(reference, {}, depth);
  std::ranges::stable_sort(candidate, {}, depth);
  for (std::size_t i = 0; reference.size() == candidate.size() && i < reference.size(); ++i) {
    if (score(*reference[i], *candidate[i])) {
      add({.paths = {{reference[i]->path}, {candidate[i]->path}},
           .certainty = Certainty::kLikely,
           .evidence = "the same parameters within"});
    }
  }
}

std::optional<int> ModulePairs::score(const GuessModule& reference,
                                      const GuessModule& candidate) const {
  int agreeing = 0;
  bool shared = false;
  const auto add_up = [&](const TensorId& left, const TensorId& right) {
    const Likeness likeness =
        state_.comparable ? agreements_.of(left, right).likeness : Likeness::kUnknown;
    agreeing += likeness == Likeness::kAgree ? 1 : 0;
    return likeness;
  };
  for (const auto& [slot, ours] : reference.outputs) {
    const auto theirs = candidate.outputs.find(slot);
    if (theirs == candidate.outputs.end()) {
      continue;
    }
    shared = true;
    const Unit& left = state_.reference.unit(ours);
    const Unit& right = state_.candidate.unit(theirs->second);
    const Likeness likeness = add_up(left.id, right.id);
    if (likeness == Likeness::kDiffer || arrangements(left.shape, right.shape).empty()) {
      return std::nullopt;
    }
    for (const TensorId& one : state_.reference.gradients(ours)) {
      for (const TensorId& two : state_.candidate.gradients(theirs->second)) {
        add_up(one, two);
      }
    }
  }
  for (int slot = 0; slot < 4; ++slot) {
    const auto left = state_.reference.source_of(reference, slot);
    const auto right = state_.candidate.source_of(candidate, slot);
    if (left && right) {
      add_up(*left, *right);
    }
  }
  return shared ? std::optional(agreeing) : std::nullopt;
}

// Whether both have the same last name, and as many others before them. Only where data flow says
// in which order the modules of one program run: others can run in any order, and have any names.
bool ModulePairs::stand_alike(const std::vector<const GuessModule*>& reference,
                              const std::vector<const GuessModule*>& candidate,
                              const GuessModule* left,
                              const GuessModule* right) const {
  const auto returned = [&](Names side, const GuessModule* module) {
    const auto output = module->outputs.find(0);
    return output == module->outputs.end()
               ? std::uint64_t{0}
               : state_.flow(side).print_of(state_.side(side).unit(output->second).id);
  };
  // One that returns the same tensor is no rival.
  const auto rivals = [&](Names side,
                          std::vector<const GuessModule*> modules,
                          const GuessModule* own) {
    std::erase_if(modules, [&](const GuessModule* one) {
      return one == own || (returned(side, one) != 0 && returned(side, one) == returned(side, own));
    });
    return modules;
  };
  const auto ours = rivals(Names::kReference, reference, left);
  const auto theirs = rivals(Names::kCandidate, candidate, right);
  const auto is_ordered = [&](Names side, const auto& modules, const GuessModule* own) {
    return std::ranges::all_of(modules, [&](const GuessModule* one) {
      return state_.flow(side).follows(*one, *own) || state_.flow(side).follows(*own, *one);
    });
  };
  const auto before = [](const auto& modules, const GuessModule* own) {
    return std::ranges::count_if(modules,
                                 [&](const GuessModule* one) { return one->order < own->order; });
  };
  return last_name(left) == last_name(right) && before(ours, left) == before(theirs, right) &&
         (is_ordered(Names::kReference, ours, left) ||
          is_ordered(Names::kCandidate, theirs, right));
}

// Pairs those that agree best with each other. Where several agree as well, the same last name
// decides; without values to compare, the order must agree with it.
void ModulePairs::pair_best(const std::vector<const GuessModule*>& reference,
                            const std::vector<const GuessModule*>& candidate,
                            const char* evidence) {
  using Rank = std::pair<int, bool>;
  std::map<std::pair<const GuessModule*, const GuessModule*>, Rank> ranks;
  for (const GuessModule* left : reference) {
    for (const GuessModule* right : candidate) {
      const auto agreeing = score(*left, *right);
      if (agreeing && (*agreeing > 0 || !state_.comparable)) {
        ranks[{left, right}] = {*agreeing, last_name(left) == last_name(right)};
      }
    }
  }
  for (auto& [pair, rank] : ranks) {
    if (!state_.comparable && rank.second) {
      std::vector<const GuessModule*> ours;
      std::vector<const GuessModule*> theirs;
      for (const auto& [rival, rival_rank] : ranks) {
        if (rival.second == pair.second) {
          ours.push_back(rival.first);
        }
        if (rival.first == pair.first) {
          theirs.push_back(rival.second);
        }
      }
      rank.second = stand_alike(ours, theirs, pair.first, pair.second);
    }
  }
  std::vector<ModulePair> found;
  for (const auto& [pair, rank] : ranks) {
    const bool best = std::ranges::none_of(ranks, [&](const auto& entry) {
      const auto& [rival, rival_rank] = entry;
      return rival != pair && (rival.first == pair.first || rival.second == pair.second) &&
             rival_rank >= rank;
    });
    if (best) {
      found.push_back({.paths = {{pair.first->path}, {pair.second->path}},
                       .certainty = rank.first > 0 ? Certainty::kCertain : Certainty::kLikely,
                       .evidence = evidence});
    }
  }
  std::ranges::for_each(found, [&](ModulePair& pair) { add(std::move(pair)); });
}

void ModulePairs::pair_without_parameters() {
  using Region = std::pair<std::string, std::string>;
  for (std::size_t level = 1; level < 64; ++level) {
    std::map<Region, Both<std::vector<const GuessModule*>>> regions;
    bool deeper = false;
    for (const Names side : kBothNames) {
      for (const auto& [path, module] : state_.side(side).modules()) {
        if (!has_tensors(module) || !module.all_parameters.empty() || !is_free(side, path)) {
          continue;
        }
        deeper = deeper || depth(&module) > level;
        Region region = region_of(side, path);
        const std::size_t outer = region.first.empty() ? 0 : path_parts(region.first).size();
        if (side == Names::kCandidate) {
          std::swap(region.first, region.second);
        }
        auto& modules = regions[region];
        if (depth(&module) <= outer + level) {
          modules.of(side).push_back(&module);
        }
      }
    }
    for (auto& [region, modules] : regions) {
      pair_best(modules.reference, modules.candidate, "the same place, without parameters");
    }
    if (!deeper) {
      return;
    }
  }
}

void ModulePairs::pair_by_layers() {
  std::vector<PathGroup> known;
  for (const ModulePair& pair : pairs_) {
    known.push_back(pair.paths);
  }
  const LayerPatterns patterns(known);
  for (const auto& [path, module] : state_.reference.modules()) {
    const auto prediction = is_free(Names::kReference, path) && has_tensors(module)
                                ? patterns.predict(Names::kReference, path)
                                : std::nullopt;
    if (!prediction) {
      continue;
    }
    bool possible = true;
    for (const Names side : kBothNames) {
      for (const std::string& one : prediction->group.of(side)) {
        possible = possible && is_free(side, one) && state_.side(side).module(one) != nullptr;
      }
    }
    if (possible) {
      add({.paths = prediction->group,
           .fusion = pairs_[prediction->example].fusion,
           .certainty = Certainty::kLikely,
           .evidence = fmt::format("as in {} other layers", prediction->support)});
    }
  }
}

}  // namespace ttrace
