#include "analysis/guess/same_order.h"

#include "analysis/guess/equal_values.h"
#include "analysis/guess/parameter_shapes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr int kAnchored = 1000;  // a pair that values decided outweighs all others
constexpr std::size_t kMostParts = 3;

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
using Options = std::map<const GuessModule*, std::set<std::vector<const GuessModule*>>>;

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

// Undecided modules of the sequence that take the same tensor as `module` and have its shapes, and
// the module itself.
std::vector<const GuessModule*> siblings_of(const GuessState& state,
                                            Names side,
                                            const std::vector<const GuessModule*>& sequence,
                                            const GuessModule& module) {
  const ParameterShapes shapes(state);
  std::vector<const GuessModule*> siblings;
  for (const GuessModule* other_module : sequence) {
    if (other_module == &module ||
        (shapes.is_open(side, *other_module) && shapes.are_alike(side, module, *other_module) &&
         shapes.take_the_same(side, module, *other_module))) {
      siblings.push_back(other_module);
    }
  }
  return siblings;
}

// Turns options of modules into decisions and questions about their parameters.
class Decisions {
 public:
  Decisions(GuessState& state, const Alignment& alignment)
      : state_(state),
        alignment_(alignment),
        shapes_(state),
        options_(options_of(alignment)),
        left_(alignment.sequence(Names::kReference)),
        right_(alignment.sequence(Names::kCandidate)) {}

  void make() {
    for (const GuessModule* module : left_) {
      if (shapes_.is_open(Names::kReference, *module) && is_decided(*module)) {
        decide(*module, **options_.at(module).begin()->begin());
      }
    }
    for (const Names side : {Names::kReference, Names::kCandidate}) {
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

  void decide(const GuessModule& reference, const GuessModule& candidate) {
    const auto ours = siblings_of(state_, Names::kReference, left_, reference);
    const auto theirs = siblings_of(state_, Names::kCandidate, right_, candidate);
    if (ours.size() == 1 && theirs.size() == 1) {
      pair(reference, candidate, "the only one of its shape at its place in the order");
      return;
    }
    // Equal names decide nothing: programs differ in which of two linears they call `w1`.
    siblings_[&reference] = theirs;
    for (const GuessModule* module : theirs) {
      siblings_[module] = ours;
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
      if (const auto found = siblings_.find(&module); found != siblings_.end()) {
        open.why = "several take the same tensor and have this shape; equal start weights decide";
        for (const GuessModule* option : found->second) {
          add_option(open, {option});
        }
      } else {
        bool parts = false;
        for (const auto& group : options_.at(&module)) {
          add_option(open, group);
          parts = parts || group.size() > 1 || is_part_of(group, module);
        }
        open.why = parts
                       ? "shapes do not show in which order and groups the parts lie; equal start "
                         "weights decide"
                   : open.options.empty()
                       ? "nothing on the other side has this shape at this place"
                       : "the order of the modules allows several; equal start weights decide";
      }
      state_.pairings.ask(std::move(open));
    }
  }

  [[nodiscard]] bool is_part_of(const std::vector<const GuessModule*>& group,
                                const GuessModule& module) const {
    return group.size() == 1 &&
           std::ranges::any_of(options_.at(group.front()), [&](const auto& parts) {
             return parts.size() > 1 && std::ranges::find(parts, &module) != parts.end();
           });
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
  const std::vector<const GuessModule*>& left_;
  const std::vector<const GuessModule*>& right_;
  std::map<const GuessModule*, std::vector<const GuessModule*>> siblings_;
};

}  // namespace

void pair_by_order(GuessState& state) {
  const Alignment alignment(state);
  Decisions(state, alignment).make();
}

}  // namespace ttrace
