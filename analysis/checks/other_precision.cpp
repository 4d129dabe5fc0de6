#include "analysis/checks/other_precision.h"

#include "analysis/findings/wording.h"
#include "trace/base/precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>

namespace ttrace {
namespace {

struct OtherType {
  ElementType reference;
  ElementType candidate;
  std::string sentence;
  bool is_known = false;  // the head of the report says so
};

// REQUIRES: the precision of both is known.
OtherType of_parameters(const Manifest& reference, const Manifest& candidate) {
  const ElementType expected = precision_of(reference.precision).stored;
  const ElementType found = precision_of(candidate.precision).stored;
  return {
      .reference = expected,
      .candidate = found,
      .sentence = fmt::format("both programs ask for {}, and the reference keeps its parameters "
                              "in it, but the candidate keeps them in {}",
                              candidate.intended,
                              name_of(found)),
      .is_known = true};
}

std::optional<OtherType> other_type(const Report& report, std::size_t tensors) {
  if (misses_intention(report.reference.manifest, report.candidate.manifest)) {
    return of_parameters(report.reference.manifest, report.candidate.manifest);
  }
  const std::optional<ElementType>& reference = report.reference.computes_in;
  const std::optional<ElementType>& candidate = report.candidate.computes_in;
  if (!reference || !candidate || reference == candidate) {
    return std::nullopt;
  }
  return OtherType{.reference = *reference,
                   .candidate = *candidate,
                   .sentence = fmt::format(
                       "the candidate computes in {}, the reference in {} ({} {} another type): "
                       "give both the same policy",
                       name_of(*candidate),
                       name_of(*reference),
                       counted(tensors, "tensor"),
                       tensors == 1 ? "has" : "have")};
}

}  // namespace

bool misses_intention(const Manifest& reference, const Manifest& candidate) {
  const Precision* const expected = find_precision(reference.precision);
  const Precision* const found = find_precision(candidate.precision);
  return expected != nullptr && found != nullptr && expected->stored != found->stored &&
         reference.intended == reference.precision && candidate.intended == reference.intended;
}

void name_other_precision(Report& report) {
  const auto count = std::ranges::count_if(
      report.tensors, [](const TensorVerdict& tensor) { return tensor.fails(Question::kType); });
  const std::optional<OtherType> other = other_type(report, static_cast<std::size_t>(count));
  if (!other || count == 0) {
    return;
  }
  if (!other->is_known) {
    report.remarks.push_back(other->sentence);
  }
  const bool is_coarser = element_size(other->candidate) < element_size(other->reference);
  for (TensorVerdict& tensor : report.tensors) {
    for (Check& check : tensor.checks) {
      if (check.question == Question::kType && !check.holds) {
        check.claim = Hypothesis{
            .signature = is_coarser ? Signature::kExtraRounding : Signature::kHigherPrecision,
            .sentence = other->sentence};
      }
    }
  }
}

}  // namespace ttrace
