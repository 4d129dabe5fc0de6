// All knowledge about every kind of tensor, in one table. A new kind is one row.
//
// Thread-safety: constants.
#pragma once

#include "trace/base/table_of_enum.h"

#include <ttrace/kind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ttrace {

enum class KindFamily : std::uint8_t {
  kData,                // given to the model: must be equal on both sides
  kActivation,          // values that modules take and return
  kActivationGradient,  // gradients of these
  kParameter,           // parameters and their copies
  kParameterGradient,
  kMoment,  // what AdamW keeps of gradients
  kState,   // what else is kept from step to step
  kLoss,
  kScalar,
  kRouting,
  kQuantisation,  // scales, their histories, and what products consume
  kCollective,    // what ranks give to a collective call and get from it
  kMessage,       // what one rank sends to another
  kProgram,       // what the program ran, as text
};

struct KindTraits {
  Kind kind = Kind::kData;
  std::string_view name;
  std::string_view words;            // for people
  std::string_view field = "value";  // see annotation_field()
  KindFamily family = KindFamily::kData;
  bool holds_samples = false;       // its tensors may have a dimension of samples
  bool has_gradient_scale = false;  // is multiplied by the micro-batch's gradient scale
  bool of_module_input = false;     // a module that consists of parts has one for all of them
  bool of_update = false;           // exists once per step, after the reduction of gradients
  int power_of_gradient = 0;        // a moment is an average of this power of gradients
};

inline constexpr std::array kKindTraits = {
    KindTraits{.kind = Kind::kData,
               .name = "data",
               .words = "data",
               .field = "data",
               .family = KindFamily::kData,
               .holds_samples = true},
    KindTraits{.kind = Kind::kInput,
               .name = "input",
               .words = "input",
               .field = "inputs",
               .family = KindFamily::kActivation,
               .holds_samples = true,
               .of_module_input = true},
    KindTraits{.kind = Kind::kOutput,
               .name = "output",
               .words = "output",
               .family = KindFamily::kActivation,
               .holds_samples = true},
    KindTraits{.kind = Kind::kGradOutput,
               .name = "grad_output",
               .words = "gradient of its output",
               .field = "grad",
               .family = KindFamily::kActivationGradient,
               .holds_samples = true,
               .has_gradient_scale = true},
    KindTraits{.kind = Kind::kGradInput,
               .name = "grad_input",
               .words = "gradient of its input",
               .field = "input_grads",
               .family = KindFamily::kActivationGradient,
               .holds_samples = true,
               .has_gradient_scale = true,
               .of_module_input = true},
    KindTraits{.kind = Kind::kParam,
               .name = "param",
               .words = "value before the step",
               .family = KindFamily::kParameter},
    KindTraits{.kind = Kind::kParamGrad,
               .name = "param_grad",
               .words = "gradient of one micro-batch",
               .field = "grad",
               .family = KindFamily::kParameterGradient,
               .has_gradient_scale = true},
    KindTraits{.kind = Kind::kMainGrad,
               .name = "main_grad",
               .words = "reduced gradient",
               .family = KindFamily::kParameterGradient,
               .of_update = true},
    KindTraits{.kind = Kind::kMaster,
               .name = "master",
               .words = "master copy",
               .family = KindFamily::kParameter,
               .of_update = true},
    KindTraits{.kind = Kind::kParamNext,
               .name = "param_next",
               .words = "value after the step",
               .family = KindFamily::kParameter,
               .of_update = true},
    KindTraits{.kind = Kind::kExpAvg,
               .name = "exp_avg",
               .words = "first moment",
               .family = KindFamily::kMoment,
               .of_update = true,
               .power_of_gradient = 1},
    KindTraits{.kind = Kind::kExpAvgSq,
               .name = "exp_avg_sq",
               .words = "second moment",
               .family = KindFamily::kMoment,
               .of_update = true,
               .power_of_gradient = 2},
    KindTraits{.kind = Kind::kLoss,
               .name = "loss",
               .words = "loss",
               .family = KindFamily::kLoss,
               .holds_samples = true},
    KindTraits{
        .kind = Kind::kScalar, .name = "scalar", .words = "number", .family = KindFamily::kScalar},
    KindTraits{.kind = Kind::kRouting,
               .name = "routing",
               .words = "choice of experts",
               .field = "routing",
               .family = KindFamily::kRouting,
               .holds_samples = true},
    KindTraits{.kind = Kind::kDraw,
               .name = "draw",
               .words = "random numbers",
               .family = KindFamily::kData,
               .holds_samples = true},
    KindTraits{.kind = Kind::kScale,
               .name = "scale",
               .words = "FP8 scale",
               .field = "scales",
               .family = KindFamily::kQuantisation,
               .holds_samples = true},
    KindTraits{.kind = Kind::kAmaxHistory,
               .name = "amax_history",
               .words = "history of largest magnitudes",
               .family = KindFamily::kQuantisation},
    KindTraits{.kind = Kind::kOperand,
               .name = "operand",
               .words = "FP8 operand",
               .field = "operands",
               .family = KindFamily::kQuantisation,
               .holds_samples = true},
    KindTraits{.kind = Kind::kCollectiveInput,
               .name = "collective_input",
               .words = "input of a collective",
               .family = KindFamily::kCollective},
    KindTraits{.kind = Kind::kCollectiveOutput,
               .name = "collective_output",
               .words = "output of a collective",
               .family = KindFamily::kCollective},
    KindTraits{
        .kind = Kind::kSent, .name = "sent", .words = "sent", .family = KindFamily::kMessage},
    KindTraits{.kind = Kind::kReceived,
               .name = "received",
               .words = "received",
               .family = KindFamily::kMessage},
    KindTraits{.kind = Kind::kOperator,
               .name = "operator",
               .words = "result of an operator",
               .family = KindFamily::kActivation},
    KindTraits{.kind = Kind::kOperatorGrad,
               .name = "operator_grad",
               .words = "gradient of an operator's result",
               .family = KindFamily::kActivationGradient,
               .has_gradient_scale = true},
    KindTraits{.kind = Kind::kOperators,
               .name = "operators",
               .words = "list of operators",
               .family = KindFamily::kProgram},
    KindTraits{.kind = Kind::kState,
               .name = "state",
               .words = "optimizer's",
               .family = KindFamily::kState,
               .of_update = true,
               .power_of_gradient = 2},  // at most
    KindTraits{.kind = Kind::kCopy,
               .name = "copy",
               .words = "copy",
               .family = KindFamily::kParameter,
               .of_update = true},
    KindTraits{
        .kind = Kind::kBuffer, .name = "buffer", .words = "buffer", .family = KindFamily::kState},
    KindTraits{.kind = Kind::kStart,
               .name = "start",
               .words = "start value",
               .family = KindFamily::kParameter},
    KindTraits{.kind = Kind::kStateBefore,
               .name = "state_before",
               .words = "state before the step,",
               .family = KindFamily::kState},
};

static_assert(has_a_row_for_each(kKindTraits, &KindTraits::kind, Kind::kStateBefore));

[[nodiscard]] constexpr const KindTraits& traits_of(Kind kind) {
  return kKindTraits.at(static_cast<std::size_t>(kind));
}

[[nodiscard]] constexpr KindFamily family_of(Kind kind) {
  return traits_of(kind).family;
}

// Whether both sides must have the same values, whatever the precision.
[[nodiscard]] constexpr bool must_be_equal(Kind kind) {
  return family_of(kind) == KindFamily::kData;
}

// Whether the size of a difference decides, and not which elements differ: of what the graph
// computes and the optimizer updates, but not of what is checked for equality or computed again.
[[nodiscard]] constexpr bool is_judged_by_size(Kind kind) {
  switch (family_of(kind)) {
    case KindFamily::kActivation:
    case KindFamily::kActivationGradient:
    case KindFamily::kParameterGradient:
    case KindFamily::kMoment:
      return true;
    case KindFamily::kParameter:
      return kind != Kind::kStart;
    case KindFamily::kState:
      return kind == Kind::kState;
    case KindFamily::kQuantisation:
      return kind == Kind::kOperand;
    default:
      return false;
  }
}

[[nodiscard]] constexpr bool is_gradient(Kind kind) {
  return family_of(kind) == KindFamily::kActivationGradient ||
         family_of(kind) == KindFamily::kParameterGradient;
}

// Values of the graph between data and loss, and their gradients.
[[nodiscard]] constexpr bool is_of_graph(Kind kind) {
  return family_of(kind) == KindFamily::kActivation || is_gradient(kind);
}

// What is kept of a parameter under a name of its own, so that its path is PARAMETER.NAME.
[[nodiscard]] constexpr bool is_named_state(Kind kind) {
  return kind == Kind::kState || kind == Kind::kCopy || kind == Kind::kStateBefore;
}

// Parameters, and what training keeps for each: `param` to `exp_avg_sq`, `state`,
// `state_before` and `copy`.
[[nodiscard]] constexpr bool is_of_parameter(Kind kind) {
  return family_of(kind) == KindFamily::kParameter ||
         family_of(kind) == KindFamily::kParameterGradient ||
         family_of(kind) == KindFamily::kMoment || is_named_state(kind);
}

// The tensors that an optimizer takes and computes, once per step.
[[nodiscard]] constexpr bool is_of_optimizer(Kind kind) {
  return traits_of(kind).of_update || kind == Kind::kParam;
}

// What an optimizer keeps of gradients: `exp_avg` and `exp_avg_sq`.
[[nodiscard]] constexpr bool is_moment(Kind kind) {
  return family_of(kind) == KindFamily::kMoment;
}

// What an optimizer's step makes of a parameter: `master` and `param_next`.
[[nodiscard]] constexpr bool is_updated_parameter(Kind kind) {
  return kind == Kind::kMaster || kind == Kind::kParamNext;
}

[[nodiscard]] constexpr bool is_message(Kind kind) {
  return family_of(kind) == KindFamily::kMessage;
}

[[nodiscard]] constexpr bool is_collective(Kind kind) {
  return family_of(kind) == KindFamily::kCollective;
}

// What a single operator returned, in a zoom pass. Nobody declares where it lies.
[[nodiscard]] constexpr bool is_of_operator(Kind kind) {
  return kind == Kind::kOperator || kind == Kind::kOperatorGrad;
}

// What only zoom passes record.
[[nodiscard]] constexpr bool is_of_zoom(Kind kind) {
  return is_of_operator(kind) || kind == Kind::kOperators;
}

// Whether annotations can declare the placement of its tensors. Other tensors belong to one rank
// each, or are the same on all ranks.
[[nodiscard]] constexpr bool is_placed(Kind kind) {
  return family_of(kind) != KindFamily::kScalar && family_of(kind) != KindFamily::kProgram &&
         kind != Kind::kAmaxHistory && !is_collective(kind);
}

// The key of an annotation's entry that says where a tensor of this kind lies. Empty: none does, or
// the one of the tensor that the message is.
[[nodiscard]] constexpr std::string_view annotation_field(Kind kind) {
  return is_placed(kind) && !is_of_operator(kind) && !is_message(kind) ? traits_of(kind).field : "";
}

// The tensor of a product to which a scale, a history or an operand belongs: slot 0 is the input.
inline constexpr int kWeightSlot = 1;
inline constexpr int kGradientSlot = 2;

[[nodiscard]] constexpr bool is_of_quantised_gradient(Kind kind, int slot) {
  return family_of(kind) == KindFamily::kQuantisation && slot == kGradientSlot;
}

}  // namespace ttrace
