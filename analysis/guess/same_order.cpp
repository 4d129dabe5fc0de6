#include "analysis/guess/same_order.h"

#include "analysis/guess/parameter_shapes.h"
#include "analysis/guess/possible_pairs.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr int kAnchored = 1000;  // a pair that values decided outweighs all others

// The modules that own parameters, in the order in which they ran.
std::vector<const GuessModule*> sequence_of(const GuessSide& side) {
  std::vector<const GuessModule*> sequence;
  for (const auto& [path, module] : side.modules()) {
    if (!module.parameters.empty()) {
      sequence.push_back(&module);
    }
  }
  std::ranges::stable_sort(sequence, {}, [](const GuessModule* module) {
    return std::pair(module->order, module->parameters.front());
  });
  return sequence;
}

// One step of an alignment: so many modules of each side belong together.
struct Step {
  std::size_t reference = 0;
  std::size_t candidate = 0;
  int score = 0;
};

class Alignment {
 public:
  explicit Alignment(const GuessState& state)
      : shapes_(state),
        left_(sequence_of(state.reference)),
        right_(sequence_of(state.candidate)),
        forward_((left_.size() + 1) * (right_.size() + 1), 0),
        backward_(forward_.size(), 0) {
    for (std::size_t i = 0; i <= left_.size(); ++i) {
      for (std::size_t j = 0; j <= right_.size(); ++j) {
        for_each_step(i, j, [&](const Step& step) {
          int& best = forward_[at(i + step.reference, j + step.candidate)];
          best = std::max(best, forward_[at(i, j)] + step.score);
        });
      }
    }
    for (std::size_t i = left_.size() + 1; i-- > 0;) {
      for (std::size_t j = right_.size() + 1; j-- > 0;) {
        for_each_step(i, j, [&](const Step& step) {
          int& best = backward_[at(i, j)];
          best = std::max(best, backward_[at(i + step.reference, j + step.candidate)] + step.score);
        });
      }
    }
  }

  [[nodiscard]] const std::vector<const GuessModule*>& sequence(Names side) const {
    return side == Names::kReference ? left_ : right_;
  }

  // Visits the steps of all best alignments, with the places where they begin.
  template <class Use>
  void for_each_best(const Use& use) const {
    for (std::size_t i = 0; i <= left_.size(); ++i) {
      for (std::size_t j = 0; j <= right_.size(); ++j) {
        for_each_step(i, j, [&](const Step& step) {
          if (forward_[at(i, j)] + step.score +
                  backward_[at(i + step.reference, j + step.candidate)] ==
              backward_[0]) {
            use(i, j, step);
          }
        });
      }
    }
  }

 private:
  template <class Use>
  void for_each_step(std::size_t i, std::size_t j, const Use& use) const {
    if (i < left_.size()) {
      use(Step{1, 0, 0});
    }
    if (j < right_.size()) {
      use(Step{0, 1, 0});
    }
    if (i == left_.size() || j == right_.size()) {
      return;
    }
    if (shapes_.anchored(*left_[i], *right_[j])) {
      use(Step{1, 1, kAnchored});
    } else if (shapes_.fit(*left_[i], *right_[j])) {
      use(Step{1, 1, 2});
    }
    for (std::size_t parts = 2; parts <= kMostParts; ++parts) {
      const int score = static_cast<int>(parts) + 1;
      if (i + parts <= left_.size() &&
          shapes_.are_parts(Names::kReference, std::span(left_).subspan(i, parts), *right_[j])) {
        use(Step{parts, 1, score});
      }
      if (j + parts <= right_.size() &&
          shapes_.are_parts(Names::kCandidate, std::span(right_).subspan(j, parts), *left_[i])) {
        use(Step{1, parts, score});
      }
    }
  }

  [[nodiscard]] std::size_t at(std::size_t i, std::size_t j) const {
    return i * (right_.size() + 1) + j;
  }

  ParameterShapes shapes_;
  std::vector<const GuessModule*> left_;
  std::vector<const GuessModule*> right_;
  std::vector<int> forward_;   // best score of the beginnings
  std::vector<int> backward_;  // and of the rests
};

// What a module may be, over all best alignments: groups of modules of the other side; an empty
// group: none of them.
using Modules = PossiblePairs::Sequence;
using Options = std::map<const GuessModule*, std::set<Modules>>;

Options options_of(const Alignment& alignment) {
  Options options;
  const auto& left = alignment.sequence(Names::kReference);
  const auto& right = alignment.sequence(Names::kCandidate);
  alignment.for_each_best([&](std::size_t i, std::size_t j, const Step& step) {
    const std::vector<const GuessModule*> ours(
        left.begin() + static_cast<std::ptrdiff_t>(i),
        left.begin() + static_cast<std::ptrdiff_t>(i + step.reference));
    const std::vector<const GuessModule*> theirs(
        right.begin() + static_cast<std::ptrdiff_t>(j),
        right.begin() + static_cast<std::ptrdiff_t>(j + step.candidate));
    for (const GuessModule* module : ours) {
      options[module].insert(theirs);
    }
    for (const GuessModule* module : theirs) {
      options[module].insert(ours);
    }
  });
  return options;
}

// Turns options of modules into decisions and questions about their parameters.
class Decisions {
 public:
  Decisions(GuessState& state, const Alignment& alignment)
      : state_(state),
        alignment_(alignment),
        shapes_(state),
        options_(options_of(alignment)),
        possible_(
            state,
            alignment.sequence(Names::kReference),
            alignment.sequence(Names::kCandidate),
            [this](Names side, const GuessModule& module) { return parts_of(side, module); }) {}

  void make() {
    for (const GuessModule* module : alignment_.sequence(Names::kReference)) {
      const Modules possible = possible_.of(Names::kReference, *module);
      if (shapes_.is_open(Names::kReference, *module) && possible.size() == 1) {
        decide(*module, *possible.front());
      }
    }
    for (const Names side : kBothNames) {
      for (const GuessModule* module : alignment_.sequence(side)) {
        ask(side, *module);
      }
    }
  }

 private:
  // Whether all best alignments have it with the same single module.
  [[nodiscard]] bool is_decided(const GuessModule& module) const {
    const auto& groups = options_.at(&module);
    return groups.size() == 1 && groups.begin()->size() == 1 &&
           options_.at(groups.begin()->front()).size() == 1 &&
           options_.at(groups.begin()->front()).begin()->size() == 1;
  }

  // No other one of these shapes can have run in its place, and a best alignment agrees. All of
  // them must where one program has more modules of these shapes than the other one.
  void decide(const GuessModule& reference, const GuessModule& candidate) {
    const bool agrees = options_.at(&reference).contains(Modules{&candidate}) &&
                        (possible_.counted(Names::kReference, reference) || is_decided(reference));
    if (agrees && possible_.of(Names::kCandidate, candidate) == Modules{&reference} &&
        parts_of(Names::kReference, reference) == PossiblePairs::Parts::kNo &&
        parts_of(Names::kCandidate, candidate) == PossiblePairs::Parts::kNo) {
      pair(reference, candidate, "the only one of its shape at its place in the order");
    }
  }

  void pair(const GuessModule& reference, const GuessModule& candidate, const char* evidence) {
    for (Pairing& one : shapes_.leaves(reference, candidate)) {
      const bool is_free = !state_.pairings.has(Names::kReference, one.reference.front()) &&
                           !state_.pairings.has(Names::kCandidate, one.candidate.front());
      if (is_free) {
        one.certainty = Certainty::kLikely;
        one.evidence = evidence;
        state_.pairings.add(std::move(one));
      }
    }
  }

  void ask(Names side, const GuessModule& module) {
    for (const UnitNumber unit : module.parameters) {
      if (state_.pairings.has(side, unit)) {
        continue;
      }
      OpenUnit open{.side = side, .unit = unit, .options = {}, .why = {}};
      add_options(open, module);
      state_.pairings.ask(std::move(open));
    }
  }

  [[nodiscard]] bool is_part_in(const GuessModule& module, const Modules& group) const {
    return group.size() > 1 ||
           (group.size() == 1 &&
            std::ranges::any_of(options_.at(group.front()), [&](const Modules& parts) {
              return parts.size() > 1 && std::ranges::find(parts, &module) != parts.end();
            }));
  }

  [[nodiscard]] bool is_ever_part(const GuessModule& module) const {
    return std::ranges::any_of(options_.at(&module),
                               [&](const Modules& group) { return is_part_in(module, group); });
  }

  // Whether another module of its shapes takes the same tensor, and one of the two alone is put
  // together with others: that could as well be the other one.
  [[nodiscard]] bool has_unlike_sibling(Names side, const GuessModule& module) const {
    return std::ranges::any_of(alignment_.sequence(side), [&](const GuessModule* sibling) {
      return sibling != &module && shapes_.is_open(side, *sibling) &&
             shapes_.are_alike(side, module, *sibling) &&
             options_.at(sibling) != options_.at(&module) &&
             (is_ever_part(module) || is_ever_part(*sibling)) &&
             shapes_.take_the_same(side, module, *sibling);
    });
  }

  // In all best alignments, or in some.
  [[nodiscard]] PossiblePairs::Parts parts_of(Names side, const GuessModule& module) const {
    if (!shapes_.is_open(side, module)) {
      return PossiblePairs::Parts::kNo;
    }
    if (has_unlike_sibling(side, module)) {
      return PossiblePairs::Parts::kMaybe;
    }
    const bool always = std::ranges::all_of(
        options_.at(&module), [&](const Modules& group) { return is_part_in(module, group); });
    return always                 ? PossiblePairs::Parts::kYes
           : is_ever_part(module) ? PossiblePairs::Parts::kMaybe
                                  : PossiblePairs::Parts::kNo;
  }

  void add_options(OpenUnit& open, const GuessModule& module) {
    const bool parts = parts_of(open.side, module) != PossiblePairs::Parts::kNo;
    const Modules possible = parts ? Modules() : possible_.of(open.side, module);
    for (const GuessModule* one : possible) {
      add_option(open, {one});
    }
    for (const auto& group : open.options.empty() ? options_.at(&module) : std::set<Modules>()) {
      add_option(open, group);
    }
    const GuessSide& own = state_.side(other(open.side));
    const bool one_input =
        possible.size() > 1 && own.source_of(*possible.front(), 0) &&
        std::ranges::all_of(possible, [&](const GuessModule* one) {
          return shapes_.take_the_same(other(open.side), *one, *possible.front());
        });
    open.why =
        parts ? "shapes do not show in which order and groups the parts lie; equal start weights "
                "decide"
        : open.options.empty() ? "nothing on the other side has this shape at this place"
        : possible.size() == 1
            ? "its shape does not show in which order its dimensions stand; equal start weights "
              "decide"
        : one_input ? "several take the same tensor and have this shape; equal start weights decide"
                    : "several have this shape, and nothing shows that they run one after the "
                      "other; equal start weights decide";
  }

  // The parameters of these modules that are like the open one.
  void add_option(OpenUnit& open, const std::vector<const GuessModule*>& modules) {
    const GuessSide& own = state_.side(open.side);
    const GuessSide& others = state_.side(other(open.side));
    std::vector<UnitNumber> units;
    for (const GuessModule* module : modules) {
      for (const UnitNumber unit : module->parameters) {
        if (!state_.pairings.has(other(open.side), unit) &&
            others.unit(unit).shape.size() == own.unit(open.unit).shape.size()) {
          units.push_back(unit);
        }
      }
    }
    if (!units.empty()) {
      open.options.push_back(std::move(units));
    }
  }

  GuessState& state_;
  const Alignment& alignment_;
  ParameterShapes shapes_;
  Options options_;
  PossiblePairs possible_;
};

}  // namespace

void pair_by_order(GuessState& state) {
  const auto is_decided = [&](Names side) {
    const std::vector<Unit>& units = state.side(side).units();
    for (UnitNumber unit = 0; unit < units.size(); ++unit) {
      if (units[unit].role == UnitRole::kParameter && !state.pairings.has(side, unit)) {
        return false;
      }
    }
    return true;
  };
  if (is_decided(Names::kReference) && is_decided(Names::kCandidate)) {
    return;  // by values
  }
  const Alignment alignment(state);
  Decisions(state, alignment).make();
}

}  // namespace ttrace
