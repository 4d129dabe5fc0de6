#include "analysis/findings/notes.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace ttrace {

void note_weak_operators(Report& report) {
  std::size_t count = 0;
  const TensorVerdict* worst = nullptr;
  const auto share = [](const TensorVerdict& tensor) {
    const Check& operators = *tensor.find(Question::kOperator);
    return operators.term(Term::kNative) / operators.term(Term::kNorm);
  };
  for (const TensorVerdict& tensor : report.tensors) {
    const Check* const operators = tensor.find(Question::kOperator);
    if (operators != nullptr && operators->term(Term::kNorm) > 0.0 && is_weak(*operators)) {
      ++count;
      worst = worst == nullptr || share(tensor) > share(*worst) ? &tensor : worst;
    }
  }
  if (worst != nullptr) {
    report.notes.push_back(fmt::format(
        "reference: the operators of {} are checked weakly, because the reference itself errs by "
        "more than 1 % there in its own precision; the worst is {} with {} %",
        counted(count, "tensor"),
        to_string(worst->id),
        short_number(100.0 * share(*worst))));
  }
}

void note_harmless_scales(Report& report) {
  const auto count = std::ranges::count_if(report.tensors, [](const TensorVerdict& tensor) {
    return tensor.has(Excuse::kHarmlessScale);
  });
  if (count > 0) {
    report.notes.push_back(
        fmt::format("candidate: {} of FP8 operands {} from the reference's by a power of two, "
                    "which is harmless: the codes keep their bits and their values, and no more of "
                    "them are saturated or zero",
                    counted(count, "scale"),
                    count == 1 ? "differs" : "differ"));
  }
}

void note_one_sided(Report& report) {
  const auto count = std::ranges::count_if(report.tensors, [](const TensorVerdict& tensor) {
    return is_gradient(tensor.id.kind) &&
           std::ranges::any_of(tensor.excuses, [](const Excused& excused) {
             return excused.excuse == Excuse::kOneSided && excused.sentence.empty();
           });
  });
  if (count > 0) {
    report.notes.push_back(
        fmt::format("{} that only one side recorded {} not judged: on the other side the value is "
                    "an alias of another one or needs no gradient, or autograd does not see it",
                    counted(count, "gradient"),
                    count == 1 ? "is" : "are"));
  }
}

void note_gradient_choices(std::span<const GradientChoice> choices, Report& report) {
  if (choices.empty()) {
    return;
  }
  const auto [least, most] = std::ranges::minmax(choices, {}, &GradientChoice::factor);
  report.notes.push_back(fmt::format(
      "candidate: all gradients of {} are {} times the reference's, and its main gradients agree "
      "with the reference's: the programs divide at different places, one at the loss and the "
      "other at the main gradients. TTrace compares the gradients without this factor",
      choices.size() == 1
          ? "a micro-batch"
          : fmt::format("{} (micro-batches of ranks)", counted(choices.size(), "backward")),
      least.factor == most.factor
          ? short_number(least.factor)
          : fmt::format("{} to {}", short_number(least.factor), short_number(most.factor))));
}

}  // namespace ttrace
