#include "analysis/checks/law.h"

#include "analysis/findings/wording.h"
#include "trace/base/table_of_enum.h"

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <limits>

namespace ttrace {
namespace {

struct LawText {
  LawKind kind;
  std::string_view name;
  std::string_view formula;
};
constexpr std::array kTexts = {
    LawText{LawKind::kOutput, "output", "input x weight"},
    LawText{
        LawKind::kInputGradient, "input gradient", "the sum of gradient x weight over its takers"},
    LawText{LawKind::kWeightGradient, "weight gradient", "gradient x input"},
    LawText{LawKind::kReducedGradient,
            "reduced gradient",
            "the sum of its gradients over micro-batches and ranks"},
    LawText{LawKind::kGradientNorm, "gradient norm", "the norm of all reduced gradients"},
    LawText{LawKind::kCopies, "copies", "the same on all ranks that hold it"}};
static_assert(has_a_row_for_each(kTexts, &LawText::kind, LawKind::kCopies));

}  // namespace

std::string_view name_of(LawKind kind) {
  return kTexts.at(static_cast<std::size_t>(kind)).name;
}

std::string_view formula_of(LawKind kind) {
  return kTexts.at(static_cast<std::size_t>(kind)).formula;
}

double Law::value() const {
  return residual == 0.0 ? 0.0
         : scale > 0.0   ? residual / scale
                         : std::numeric_limits<double>::infinity();
}

std::string sentence_of(const Law& law) {
  if (law.kind == LawKind::kCopies) {
    return fmt::format(
        "it is not {}: {} hold different values", formula_of(law.kind), ranks_text(law.ranks));
  }
  const std::string factor =
      law.factor == 1.0 ? "" : fmt::format(" times {}", short_number(law.factor));
  return fmt::format("it is not {}{}: wrong by {} times what round-off explains (limit {})",
                     formula_of(law.kind),
                     factor,
                     short_number(law.value()),
                     short_number(law.limit));
}

}  // namespace ttrace
