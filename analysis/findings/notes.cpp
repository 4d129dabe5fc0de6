#include "analysis/findings/notes.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace ttrace {

void note_weak_operators(Report& report) {
  std::size_t count = 0;
  const TensorVerdict* worst = nullptr;
  const auto share = [](const TensorVerdict& tensor) {
    const Check& operators = *tensor.find(Question::kOperator);
    return operators.term("native") / operators.term("norm");
  };
  for (const TensorVerdict& tensor : report.tensors) {
    const Check* const operators = tensor.find(Question::kOperator);
    if (operators != nullptr && operators->term("norm") > 0.0 && is_weak(*operators)) {
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
  const auto count = std::ranges::count_if(
      report.tensors, [](const TensorVerdict& tensor) { return tensor.has(Excuse::kOneSided); });
  if (count > 0) {
    report.notes.push_back(
        fmt::format("{} that only one side recorded {} not judged: on the other side the value is "
                    "an alias of another one or needs no gradient, or autograd does not see it",
                    counted(count, "gradient"),
                    count == 1 ? "is" : "are"));
  }
}

}  // namespace ttrace
