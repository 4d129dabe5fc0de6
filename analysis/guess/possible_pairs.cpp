#include "analysis/guess/possible_pairs.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace ttrace {
namespace {

std::int64_t returned_by(const GuessSide& side, const GuessModule& module) {
  const auto output = module.outputs.find(0);
  return output == module.outputs.end() ? 0 : element_count(side.unit(output->second).shape);
}

std::optional<TensorId> output_of(const GuessSide& side, const GuessModule& module) {
  const auto output = module.outputs.find(0);
  return output == module.outputs.end() ? std::nullopt
                                        : std::optional(side.unit(output->second).id);
}

std::vector<std::int64_t> sizes_of(const GuessSide& side, const GuessModule& module) {
  std::vector<std::int64_t> sizes;
  for (const UnitNumber unit : module.parameters) {
    sizes.push_back(element_count(side.unit(unit).shape));
  }
  std::ranges::sort(sizes);
  return sizes;
}

}  // namespace

PossiblePairs::PossiblePairs(const GuessState& state,
                             const Sequence& reference,
                             const Sequence& candidate,
                             const std::function<Parts(Names, const GuessModule&)>& parts_of)
    : state_(state), shapes_(state) {
  add(Names::kReference, reference, parts_of);
  add(Names::kCandidate, candidate, parts_of);
  count_shapes();
  allow_all();
  allow_parts(Names::kReference);
  allow_parts(Names::kCandidate);
  do {
    changed_ = false;
    for (const Names side : kBothNames) {
      forbid_by_rank(side);
      forbid_by_order(side);
      forbid_by_neighbour(side, &Module::taken, &Module::gives);
      forbid_by_neighbour(side, &Module::gives, &Module::taken);
      forbid_taken(side);
    }
  } while (changed_);
}

PossiblePairs::Sequence PossiblePairs::of(Names side, const GuessModule& module) const {
  const Side& own = sides_.of(side);
  const Side& others = sides_.of(other(side));
  Sequence possible;
  for (std::size_t i = 0; i < own.modules.size(); ++i) {
    for (std::size_t j = 0; own.modules[i].module == &module && j < others.modules.size(); ++j) {
      if (own.can[i][j]) {
        possible.push_back(others.modules[j].module);
      }
    }
  }
  return possible;
}

void PossiblePairs::add(Names side,
                        const Sequence& sequence,
                        const std::function<Parts(Names, const GuessModule&)>& parts_of) {
  const GuessSide& own = state_.side(side);
  const DataFlow& flow = state_.flow(side);
  for (const GuessModule* module : sequence) {
    Module one{.module = module,
               .last = module->order,
               .returned = returned_by(own, *module),
               .parts = parts_of(side, *module),
               .taken = flow.print_of(own.source_of(*module, 0)),
               .gives = flow.print_of(output_of(own, *module)),
               .parameters = sizes_of(own, *module),
               .later = {}};
    if (module->outputs.empty() && module->inputs.empty() && module->taken.empty()) {
      // It never ran as a module, so whatever is around it used its parameters at some time.
      for (const auto& [path, inner] : own.modules()) {
        if (module->path.find('.') != std::string::npos &&
            path.starts_with(owner_of(module->path) + ".")) {
          one.last = std::max(one.last, inner.order);
        }
      }
    }
    for (const GuessModule* twin : sequence) {
      one.alike += twin != module && sizes_of(own, *twin) == one.parameters &&
                           own.source_of(*module, 0) && shapes_.take_the_same(side, *module, *twin)
                       ? 1
                       : 0;
    }
    sides_.of(side).modules.push_back(std::move(one));
  }
  add_flow(sides_.of(side), flow);
}

void PossiblePairs::add_flow(Side& side, const DataFlow& flow) {
  for (Module& earlier : side.modules) {
    for (std::size_t i = 0; i < side.modules.size(); ++i) {
      if (flow.follows(*side.modules[i].module, *earlier.module)) {
        earlier.later.push_back(i);
      }
    }
  }
}

// Only where both sides have as many modules of some shapes, and none of them may be a part.
void PossiblePairs::count_shapes() {
  std::map<std::vector<std::int64_t>, Both<std::size_t>> counts;
  std::set<std::vector<std::int64_t>> unclear;
  for (const Names side : kBothNames) {
    for (const Module& module : sides_.of(side).modules) {
      counts[module.parameters].of(side) += module.parts == Parts::kYes ? 0 : 1;
      if (module.parts == Parts::kMaybe) {
        unclear.insert(module.parameters);
      }
    }
  }
  for (const Names side : kBothNames) {
    for (Module& module : sides_.of(side).modules) {
      const auto& [ours, theirs] = counts[module.parameters];
      module.has_partner =
          module.parts == Parts::kYes || (ours == theirs && !unclear.contains(module.parameters));
    }
  }
}

bool PossiblePairs::can_be(const Module& reference, const Module& candidate) const {
  if (reference.parts == Parts::kYes || candidate.parts == Parts::kYes) {
    return false;
  }
  if (!shapes_.is_open(Names::kReference, *reference.module) ||
      !shapes_.is_open(Names::kCandidate, *candidate.module)) {
    return shapes_.anchored(*reference.module, *candidate.module);
  }
  const bool known = reference.returned != 0 && candidate.returned != 0;
  const bool counted = known && reference.has_partner && candidate.has_partner;
  return shapes_.fit(*reference.module, *candidate.module) &&
         (!known || reference.returned == candidate.returned) &&
         (!counted || reference.alike == candidate.alike);
}

void PossiblePairs::allow_all() {
  auto& [left, right] = sides_;
  left.can.assign(left.modules.size(), std::vector<bool>(right.modules.size(), false));
  right.can.assign(right.modules.size(), std::vector<bool>(left.modules.size(), false));
  for (std::size_t i = 0; i < left.modules.size(); ++i) {
    for (std::size_t j = 0; j < right.modules.size(); ++j) {
      const bool possible = can_be(left.modules[i], right.modules[j]);
      left.can[i][j] = possible;
      right.can[j][i] = possible;
    }
  }
}

void PossiblePairs::allow_parts(Names parts) {
  Side& own = sides_.of(parts);
  Side& others = sides_.of(other(parts));
  for (std::size_t count = 2; count <= kMostParts; ++count) {
    for (std::size_t i = 0; i + count <= own.modules.size(); ++i) {
      Sequence group;
      for (std::size_t k = i; k < i + count; ++k) {
        group.push_back(own.modules[k].module);
      }
      for (std::size_t j = 0; j < others.modules.size(); ++j) {
        if (return_as_much(std::span(own.modules).subspan(i, count), others.modules[j]) &&
            shapes_.are_parts(parts, group, *others.modules[j].module)) {
          for (std::size_t k = i; k < i + count; ++k) {
            own.can[k][j] = true;
            others.can[j][k] = true;
          }
        }
      }
    }
  }
}

bool PossiblePairs::return_as_much(std::span<const Module> parts, const Module& whole) {
  std::int64_t returned = 0;
  for (const Module& part : parts) {
    if (part.returned == 0) {
      return true;
    }
    returned += part.returned;
  }
  return whole.returned == 0 || returned == whole.returned;
}

bool PossiblePairs::counted(Names side, const GuessModule& module) const {
  const Side& own = sides_.of(side);
  return std::ranges::any_of(
      own.modules, [&](const Module& one) { return one.module == &module && one.has_partner; });
}

bool PossiblePairs::can_precede(const Module& first, const Module& second) {
  return first.module->order <= second.last;
}

void PossiblePairs::forbid(Names side, std::size_t own, std::size_t other_module) {
  sides_.of(side).can[own][other_module] = false;
  sides_.of(other(side)).can[other_module][own] = false;
  changed_ = true;
}

// A module with so many before it on one side has as many before it on the other one.
void PossiblePairs::forbid_by_rank(Names side) {
  Side& own = sides_.of(side);
  const Side& others = sides_.of(other(side));
  const auto of_class = [](const Module& one, const Module& two) {
    return one.parts == two.parts && one.parameters == two.parameters;
  };
  for (std::size_t i = 0; i < own.modules.size(); ++i) {
    const Module& module = own.modules[i];
    if (module.parts != Parts::kNo || !module.has_partner) {
      continue;
    }
    std::size_t before = 0;
    for (const Module& one : own.modules) {
      before += of_class(one, module) && std::ranges::find(one.later, i) != one.later.end() ? 1 : 0;
    }
    const auto after = static_cast<std::size_t>(std::ranges::count_if(
        module.later, [&](std::size_t one) { return of_class(own.modules[one], module); }));
    for (std::size_t j = 0; j < others.modules.size(); ++j) {
      if (!own.can[i][j]) {
        continue;
      }
      std::size_t earlier = 0;
      std::size_t later = 0;
      for (const Module& one : others.modules) {
        if (&one != &others.modules[j] && of_class(one, module)) {
          earlier += can_precede(one, others.modules[j]) ? 1 : 0;
          later += can_precede(others.modules[j], one) ? 1 : 0;
        }
      }
      if (earlier < before || later < after) {
        forbid(side, i, j);
      }
    }
  }
}

// If one follows the other on this side, so do their partners.
void PossiblePairs::forbid_by_order(Names side) {
  Side& own = sides_.of(side);
  const Side& others = sides_.of(other(side));
  const auto forbid_alone = [&](std::size_t module, std::size_t rival, bool is_first) {
    const std::vector<bool>& rivals = own.can[rival];
    if (!own.modules[rival].has_partner || std::ranges::find(rivals, true) == rivals.end()) {
      return;
    }
    for (std::size_t j = 0; j < others.modules.size(); ++j) {
      bool possible = !own.can[module][j];
      for (std::size_t k = 0; !possible && k < others.modules.size(); ++k) {
        possible = rivals[k] && k != j &&
                   (is_first ? can_precede(others.modules[j], others.modules[k])
                             : can_precede(others.modules[k], others.modules[j]));
      }
      if (!possible) {
        forbid(side, module, j);
      }
    }
  };
  for (std::size_t first = 0; first < own.modules.size(); ++first) {
    for (const std::size_t second : own.modules[first].later) {
      forbid_alone(first, second, true);
      forbid_alone(second, first, false);
    }
  }
}

// If it takes what a module returned whose partner is known, its partner takes what that one
// returned; and if a known one takes what it returned, so does that one's partner. A tensor can
// change between two modules of one program (to another type), so this decides only where one of
// the possible partners does.
void PossiblePairs::forbid_by_neighbour(Names side,
                                        std::uint64_t Module::*near_end,
                                        std::uint64_t Module::*far_end) {
  Side& own = sides_.of(side);
  const Side& others = sides_.of(other(side));
  for (std::size_t i = 0; i < own.modules.size(); ++i) {
    const std::uint64_t shared = own.modules[i].*near_end;
    std::set<std::uint64_t> expected;
    for (std::size_t k = 0; shared != 0 && k < own.modules.size(); ++k) {
      const auto partner = only(own.can[k]);
      if (own.modules[k].*far_end == shared && own.modules[k].has_partner && partner &&
          only(others.can[*partner])) {
        expected.insert(others.modules[*partner].*far_end);
      }
    }
    const auto has_it = [&](std::size_t j) {
      return others.modules[j].*near_end != 0 && expected.contains(others.modules[j].*near_end);
    };
    bool found = false;
    for (std::size_t j = 0; j < others.modules.size(); ++j) {
      found = found || (own.can[i][j] && has_it(j));
    }
    for (std::size_t j = 0; found && j < others.modules.size(); ++j) {
      if (own.can[i][j] && others.modules[j].*near_end != 0 && !has_it(j)) {
        forbid(side, i, j);
      }
    }
  }
}

std::optional<std::size_t> PossiblePairs::only(const std::vector<bool>& can) {
  const auto first = std::ranges::find(can, true);
  return first == can.end() || std::find(first + 1, can.end(), true) != can.end()
             ? std::nullopt
             : std::optional(static_cast<std::size_t>(first - can.begin()));
}

// What can only be the partner of one module is no other's.
void PossiblePairs::forbid_taken(Names side) {
  Side& own = sides_.of(side);
  for (std::size_t i = 0; i < own.modules.size(); ++i) {
    const auto taken = only(own.can[i]);
    if (own.modules[i].parts != Parts::kNo || !own.modules[i].has_partner || !taken) {
      continue;
    }
    for (std::size_t k = 0; k < own.modules.size(); ++k) {
      if (k != i && own.can[k][*taken]) {
        forbid(side, k, *taken);
      }
    }
  }
}

}  // namespace ttrace
