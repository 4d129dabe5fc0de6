#include "analysis/reports/finding_text.h"

#include "analysis/findings/wording.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string_view>

namespace ttrace {
namespace {

std::string spaced(std::string_view name) {
  std::string text(name);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

void write_numbers(std::ostream& out, const TensorVerdict& tensor) {
  const Comparison& comparison = *tensor.comparison;
  out << "  error: " << short_number(comparison.error) << ", "
      << short_number(comparison.relative_error)
      << (tensor.symptom == Symptom::kRecompute ? " of the first forward's norm "
                                                : " of the reference's norm ")
      << short_number(comparison.reference_norm) << '\n';
  if (comparison.asked) {
    out << "  bound: |c - r| <= " << short_number(comparison.asked->tolerance.atol) << " + "
        << short_number(comparison.asked->tolerance.rtol) << " |r| at every element, from "
        << tensor.bound_source << "; " << comparison.asked->beyond << " of " << comparison.elements
        << " elements beyond";
  } else {
    out << "  bound: " << short_number(comparison.bound)
        << (tensor.bound_source.starts_with("exact") ? ", " : " from ") << tensor.bound_source;
  }
  if (comparison.bound > 0.0 && !comparison.asked) {
    out << "; relative errors below " << short_number(comparison.detectable) << " go unseen";
  }
  out << '\n';
  if (tensor.symptom == Symptom::kSlice) {
    out << "  slice: " << comparison.slice->where << ": error "
        << short_number(comparison.slice->error) << ", bound "
        << short_number(comparison.slice->bound) << '\n';
  }
  if (comparison.different > 0) {
    out << "  elements: largest difference " << short_number(comparison.max_difference);
    if (!comparison.max_index.empty()) {
      out << " at " << index_text(comparison.max_index);
    }
    out << ", " << comparison.different << " of " << comparison.elements << " differ\n";
  }
}

// What its own operators did, whatever came before.
void write_residual(std::ostream& out, const OperatorResidual& residual) {
  out << "  operators: from the candidate's own inputs they make something "
      << short_number(residual.error) << " away from it; round-off leaves "
      << short_number(residual.scale()) << ", so R " << short_number(residual.residual())
      << " (limit " << short_number(residual.limit) << "), factor " << factor_text(residual.factor)
      << "; " << short_number(std::floor(1000.0 * residual.bit_equal) / 10.0)
      << " % of the elements are bit for bit what the reference makes of them\n";
}

void write_golden(std::ostream& out, const GoldenComparison& golden) {
  out << "  golden: the candidate is " << short_number(golden.candidate_error)
      << " away from FP64, the reference " << short_number(golden.reference_error) << ", so rho "
      << short_number(golden.rho()) << '\n';
}

}  // namespace

std::string short_cause(const TensorVerdict& tensor) {
  switch (tensor.status) {
    case Status::kMissingInCandidate:
      return "missing in the candidate";
    case Status::kMissingInReference:
      return "missing in the reference";
    default:
      break;
  }
  if (tensor.symptom == Symptom::kSlice) {
    return tensor.comparison->slice->where;
  }
  if (tensor.symptom == Symptom::kFactor) {
    return "factor " + factor_text(tensor.comparison->factor);
  }
  return spaced(name_of(tensor.symptom));
}

FindingNumbers numbers_of(const TensorVerdict& tensor) {
  if (tensor.symptom == Symptom::kSlice) {
    const SliceComparison& slice = *tensor.comparison->slice;
    return {short_number(slice.error),
            short_number(slice.bound),
            short_number(slice.error / slice.bound)};
  }
  if (tensor.tier == Tier::kGolden) {
    const GoldenComparison& golden = *tensor.golden;
    const double bound = golden.is_too_coarse() ? golden.limit * golden.scale
                                                : golden.least * golden.reference_error;
    return {short_number(golden.candidate_error),
            short_number(bound),
            short_number(golden.candidate_error / bound)};
  }
  if (tensor.comparison) {
    return {short_number(tensor.comparison->error),
            short_number(tensor.comparison->bound),
            short_number(tensor.comparison->ratio())};
  }
  return {};
}

std::string signature_text(Signature signature) {
  return spaced(name_of(signature));
}

void write_diagnosis(std::ostream& out,
                     const char* indent,
                     const std::optional<Diagnosis>& diagnosis) {
  if (diagnosis) {
    out << indent << "probable cause: " << signature_text(diagnosis->signature) << ": "
        << diagnosis->sentence << '\n';
    if (const auto& other = diagnosis->runner_up) {
      out << indent << "or: " << signature_text(other->signature) << ": " << other->sentence
          << '\n';
    }
  }
}

void write_finding(std::ostream& out,
                   const TensorVerdict& tensor,
                   const std::optional<Diagnosis>& diagnosis) {
  out << "  what: " << tensor.cause << '\n';
  write_diagnosis(out, "  ", diagnosis);
  if (tensor.residual) {
    write_residual(out, *tensor.residual);
  }
  if (tensor.golden && !tensor.golden->is_within()) {
    write_golden(out, *tensor.golden);
  }
  if (tensor.comparison) {
    write_numbers(out, tensor);
  }
  if (!tensor.ranks.empty()) {
    out << "  concerns: " << ranks_text(tensor.ranks) << '\n';
  }
}

}  // namespace ttrace
