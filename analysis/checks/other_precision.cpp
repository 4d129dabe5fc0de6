#include "analysis/checks/other_precision.h"

#include "analysis/findings/wording.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

namespace ttrace {

void name_other_precision(const std::optional<ElementType>& reference,
                          const std::optional<ElementType>& candidate,
                          Report& report) {
  const auto count = std::ranges::count_if(
      report.tensors, [](const TensorVerdict& tensor) { return tensor.fails(Question::kType); });
  if (!reference || !candidate || reference == candidate || count == 0) {
    return;
  }
  const std::string sentence = fmt::format(
      "the candidate computes in {}, the reference in {} ({} {} another type): give both the same "
      "policy",
      name_of(*candidate),
      name_of(*reference),
      counted(count, "tensor"),
      count == 1 ? "has" : "have");
  report.remarks.push_back(sentence);
  const bool is_coarser = element_size(*candidate) < element_size(*reference);
  for (TensorVerdict& tensor : report.tensors) {
    for (Check& check : tensor.checks) {
      if (check.question == Question::kType && !check.holds) {
        check.claim = Hypothesis{
            .signature = is_coarser ? Signature::kExtraRounding : Signature::kHigherPrecision,
            .sentence = sentence};
      }
    }
  }
}

}  // namespace ttrace
