// Which modules have parameters of the same shapes.
//
// Thread-safety: reads the state only.
#pragma once

#include "analysis/guess/pairings.h"

#include <optional>
#include <span>
#include <vector>

namespace ttrace {

class ParameterShapes {
 public:
  // Keeps a reference.
  explicit ParameterShapes(const GuessState& state) : state_(state) {}

  // Whether no parameter of the module is decided.
  [[nodiscard]] bool is_open(Names side, const GuessModule& module) const;
  // Whether a parameter of one is decided to be one of the other.
  [[nodiscard]] bool anchored(const GuessModule& reference, const GuessModule& candidate) const;
  // Whether nothing is decided about either, and every parameter has a counterpart.
  [[nodiscard]] bool fit(const GuessModule& reference, const GuessModule& candidate) const;
  // Whether nothing is decided about any, `parts` take the same tensor, and their weights are as
  // large together as that of `whole`, which is of the other side.
  [[nodiscard]] bool are_parts(Names side,
                               std::span<const GuessModule* const> parts,
                               const GuessModule& whole) const;
  // Whether both modules of one side have the same shapes.
  [[nodiscard]] bool are_alike(Names side, const GuessModule& one, const GuessModule& two) const;
  // Whether both are given the same tensor, or nobody knows what they are given.
  [[nodiscard]] bool take_the_same(Names side,
                                   const GuessModule& one,
                                   const GuessModule& two) const;
  // The parameters of two modules that belong together: weights, biases, the only ones of a shape,
  // or the only ones that begin with the same constant.
  [[nodiscard]] std::vector<Pairing> leaves(const GuessModule& reference,
                                            const GuessModule& candidate) const;

 private:
  [[nodiscard]] bool fit(UnitNumber reference, UnitNumber candidate) const;
  // Whether both vary, or are the same constant.
  [[nodiscard]] bool begin_alike(UnitNumber reference, UnitNumber candidate) const;
  // Whether they are two constants.
  [[nodiscard]] bool begin_otherwise(UnitNumber reference, UnitNumber candidate) const;
  // Nothing if shapes allow several, and what the modules compute does not decide.
  [[nodiscard]] std::optional<Arrangement> arrangement(UnitNumber reference,
                                                       UnitNumber candidate) const;

  const GuessState& state_;
};

}  // namespace ttrace
