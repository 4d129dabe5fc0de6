#include "analysis/align/machine.h"

#include "analysis/align/differing_keys.h"
#include "trace/base/numerics.h"
#include "trace/base/precision.h"

#include <ttrace/error.h>

#include <fmt/core.h>

namespace ttrace {
namespace {

// Empty where the trace does not say.
std::string fact(const Manifest& manifest, const std::string& key) {
  return value_or(manifest.numerics, key, "");
}

// What an F32 program rounds the operands of products to; "f32" for the products of others, empty
// where the trace does not say.
std::string products_of(const Manifest& manifest) {
  return manifest.precision == "f32" ? fact(manifest, numerics::kProducts) : numerics::kF32;
}

// The setting that makes products of F32 numbers exact again.
std::string remedy(const Manifest& manifest) {
  return runs_on_accelerator(manifest)
             ? "torch.backends.cuda.matmul.allow_tf32 = False and leave NVIDIA_TF32_OVERRIDE unset"
             : "torch.set_float32_matmul_precision(\"highest\")";
}

bool matters(const std::string& key, bool accelerators) {
  return key != numerics::kThreads && key != numerics::kProducts &&
         (accelerators || !key.starts_with(numerics::kCudaPrefix));
}

}  // namespace

bool runs_on_accelerator(const Manifest& manifest) {
  const std::string device = fact(manifest, numerics::kDevice);
  return !device.empty() && device != numerics::kCpu;
}

std::optional<ElementType> rounded_operands(const Manifest& manifest) {
  const std::string products = products_of(manifest);
  if (products == numerics::kTf32) {
    return ElementType::kF16;
  }
  return products == numerics::kBf16 ? std::optional(ElementType::kBF16) : std::nullopt;
}

void require_same_products(const Manifest& reference, const Manifest& candidate) {
  const std::string in_reference = products_of(reference);
  const std::string in_candidate = products_of(candidate);
  if (reference.precision != candidate.precision || in_reference == in_candidate ||
      in_reference.empty() || in_candidate.empty()) {
    return;
  }
  const bool is_reference = in_reference != numerics::kF32;
  TTRACE_THROW(
      UsageError,
      fmt::format("both programs compute in f32, but the reference multiplied in {} and the "
                  "candidate in {}, which differs by far more than round-off of f32; set {} in the "
                  "{}, or let both programs multiply alike",
                  in_reference,
                  in_candidate,
                  remedy(is_reference ? reference : candidate),
                  is_reference ? "reference" : "candidate"));
}

std::vector<std::string> machine_remarks(const Manifest& reference, const Manifest& candidate) {
  std::vector<std::string> remarks;
  if (rounded_operands(reference) && rounded_operands(candidate)) {
    remarks.push_back(fmt::format(
        "both programs compute in f32 and multiply in {}, so bounds are class defaults for a "
        "rounding of {}, which noise passes do not show; to check in f32 proper, set {} in both",
        products_of(reference),
        products_of(reference),
        remedy(reference)));
  }
  if (reference.numerics.empty() || candidate.numerics.empty()) {
    return remarks;  // an earlier version did not say
  }
  const bool accelerators = runs_on_accelerator(reference) || runs_on_accelerator(candidate);
  for (const std::string& key : differing_keys(reference.numerics, candidate.numerics)) {
    if (matters(key, accelerators)) {
      remarks.push_back(fmt::format("the reference ran with {} {}, the candidate with {} {}",
                                    key,
                                    value_or(reference.numerics, key, "unset"),
                                    key,
                                    value_or(candidate.numerics, key, "unset")));
    }
  }
  return remarks;
}

bool may_be_irreproducible(const Manifest& manifest) {
  return runs_on_accelerator(manifest) && fact(manifest, numerics::kDeterministic) != "on";
}

std::string machine_line(const Manifest& manifest) {
  std::string text;
  for (const auto& [key, value] : manifest.numerics) {
    text += fmt::format("{}{} {}", text.empty() ? "machine: " : ", ", key, value);
  }
  return text.empty() ? text : text + "\n";
}

ElementType coarsest_type(const Trace& trace) {
  const std::string& text = trace.manifest().precision;
  const Precision* const precision = find_precision(text);
  TTRACE_CHECK(precision != nullptr,
               UsageError,
               fmt::format("{} has the unknown precision `{}`; write one of {} into its manifest",
                           trace.directory(),
                           text,
                           precision_names()));
  return rounded_operands(trace.manifest()).value_or(precision->coarsest);
}

}  // namespace ttrace
