// What a recorded tensor is.
#pragma once

#include <cstdint>
#include <string_view>

namespace ttrace {

// The names are the enumerators without the k, in snake_case ("grad_output").
enum class Kind : std::uint8_t {
  kData,        // tokens, labels, masks: must be equal
  kInput,       // input of a module without a traced producer
  kOutput,      // output of a module
  kGradOutput,  // gradient of the loss with respect to an output, summed over its consumers
  kGradInput,   // the same for an input without a traced producer
  kParam,       // parameter at the start of the step
  kParamGrad,   // one micro-batch's parameter gradient, before any reduction between ranks
  kMainGrad,    // accumulated and reduced gradient, before clipping
  kMaster,      // high-precision copy after the optimizer step
  kParamNext,   // parameter after the optimizer step
  kExpAvg,      // AdamW first moment after the step
  kExpAvgSq,    // AdamW second moment after the step
  kLoss,        // loss per token, not averaged
  kScalar,      // gradient norm, mean loss, learning rate
  kRouting,
  kDraw,  // what a random operator returned: a dropout mask, noise
  kScale,
  kAmaxHistory,
  kOperand,  // what a product consumes of a quantised tensor: codes times scale
  kCollectiveInput,
  kCollectiveOutput,
  kSent,
  kReceived,
  kOperator,      // of a zoom pass: what one operator inside of a module returned
  kOperatorGrad,  // the same in backward
  kOperators,     // the list of these operators
  kState,         // what else an optimizer keeps of a parameter, after the step: PARAMETER.NAME
  kCopy,          // a program's own copy of a parameter, such as an average: PARAMETER.NAME
  kBuffer,        // buffer of a module after the step
  kStart,         // a parameter's start value on a rank whose own TTrace replaced
  kStateBefore,   // what training kept of earlier steps: PARAMETER.NAME, or a buffer's path
};

[[nodiscard]] std::string_view name_of(Kind kind);
// Throws FormatError for a name that is no kind.
[[nodiscard]] Kind parse_kind(std::string_view name);

}  // namespace ttrace
