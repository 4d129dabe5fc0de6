// An operator that may take numbers from a generator, from its start to its end.
//
// Torch tags such operators (nondeterministic_seeded), but some of them draw only on request: an
// attention kernel with dropout_p above 0, dropout while a model trains. So the generators' states
// before and after decide.
//
// Thread-safety: the thread that runs the operator.
#pragma once

#include "hooks/nudge/operator_effects.h"

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace ttrace {

// States of the generators that an operator, or a step, may take numbers from.
class GeneratorStates {
 public:
  // Those of the program's default generators on `devices`, and of `own`.
  GeneratorStates(c10::ArrayRef<c10::Device> devices, c10::ArrayRef<at::Generator> own);
  // Whether one of them is in another state now. A state that cannot be read counts as another one.
  [[nodiscard]] bool have_moved() const;

 private:
  struct Known {
    at::Generator generator;
    std::vector<std::uint64_t> state;  // empty where it cannot be read
  };
  std::vector<Known> known_;
};

class RandomOperator {
 public:
  // REQUIRES: effects.may_draw.
  RandomOperator(std::string_view name,
                 c10::ArrayRef<const c10::IValue> inputs,
                 const OperatorEffects& effects);

  [[nodiscard]] bool has_drawn() const { return states_.have_moved(); }
  // What was drawn and nothing else, so that another draw can be written over it. Undefined where
  // the operator returns more, or something else, as operators that torch does not have may.
  // `outputs`: of the operator.
  [[nodiscard]] at::Tensor draw_among(const std::vector<c10::IValue>& outputs) const;
  // Of an operator that returns values next to their mask: computes the values anew from the mask.
  void apply(const at::Tensor& draw, const std::vector<c10::IValue>& outputs) const;
  // Whether each element of the draw is 0 or 1, whatever its type.
  [[nodiscard]] bool is_mask() const { return is_mask_; }

 private:
  [[nodiscard]] static GeneratorStates states_of(c10::ArrayRef<const c10::IValue> inputs);

  GeneratorStates states_;
  c10::SmallVector<at::Tensor, 1> written_;  // arguments
  bool is_of_torch_ = false;
  bool is_mask_ = false;
  at::Tensor dropped_;  // of native_dropout: its input, and the probability of zeros
  double probability_ = 0.0;
};

}  // namespace ttrace
