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

void write_bound(std::ostream& out, const TensorVerdict& tensor) {
  const Check* const asked = tensor.find(Question::kTolerance);
  if (asked != nullptr) {
    out << "  bound: |c - r| <= " << short_number(asked->term("atol")) << " + "
        << short_number(asked->term("rtol")) << " |r| at every element, from " << asked->source
        << "; " << asked->term("beyond") << " of " << tensor.comparison->elements
        << " elements beyond\n";
    return;
  }
  const std::string source = tensor.bound_source();
  out << "  bound: " << short_number(tensor.bound())
      << (source.starts_with("exact") ? ", " : " from ") << source;
  if (tensor.bound() > 0.0) {
    out << "; relative errors below " << short_number(tensor.detectable()) << " go unseen";
  }
  out << '\n';
}

void write_numbers(std::ostream& out, const TensorVerdict& tensor) {
  const Comparison& comparison = *tensor.comparison;
  out << "  error: " << short_number(comparison.error) << ", "
      << short_number(comparison.relative_error)
      << (tensor.symptom() == Symptom::kRecompute ? " of the first forward's norm "
                                                  : " of the reference's norm ")
      << short_number(comparison.reference_norm) << '\n';
  write_bound(out, tensor);
  if (tensor.symptom() == Symptom::kSlice) {
    const Check& part = *tensor.find(Question::kPart);
    out << "  slice: " << part.place.where << ": error " << short_number(part.value) << ", bound "
        << short_number(part.bound) << '\n';
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
void write_operators(std::ostream& out, const Check& operators) {
  out << "  operators: from the candidate's own inputs they make something "
      << short_number(operators.term("error")) << " away from it; round-off leaves "
      << short_number(operators.term("scale")) << ", so R " << short_number(operators.value)
      << " (limit " << short_number(operators.bound) << "), factor "
      << factor_text(operators.term("factor")) << "; "
      << short_number(std::floor(1000.0 * operators.term("bit_equal")) / 10.0)
      << " % of the elements are bit for bit what the reference makes of them\n";
}

void write_golden(std::ostream& out, const Check& golden) {
  out << "  golden: the candidate is " << short_number(golden.term("candidate_error"))
      << " away from FP64, the reference " << short_number(golden.term("reference_error"))
      << ", so rho " << short_number(golden.term("rho")) << '\n';
}

}  // namespace

std::string short_cause(const TensorVerdict& tensor) {
  switch (tensor.status()) {
    case Status::kMissingInCandidate:
      return "missing in the candidate";
    case Status::kMissingInReference:
      return "missing in the reference";
    default:
      break;
  }
  if (tensor.symptom() == Symptom::kSlice) {
    return tensor.find(Question::kPart)->place.where;
  }
  if (tensor.symptom() == Symptom::kFactor) {
    return "factor " + factor_text(tensor.comparison->factor);
  }
  return spaced(name_of(tensor.symptom()));
}

FindingNumbers numbers_of(const TensorVerdict& tensor) {
  if (tensor.symptom() == Symptom::kSlice) {
    const Check& part = *tensor.find(Question::kPart);
    return {short_number(part.value), short_number(part.bound), short_number(part.share())};
  }
  if (tensor.tier() == Tier::kGolden) {
    const Check& golden = *tensor.find(Question::kTooCoarse);
    const double error = golden.term("candidate_error");
    const double bound = golden.holds ? golden.term("least") * golden.term("reference_error")
                                      : golden.term("limit") * golden.term("scale");
    return {short_number(error), short_number(bound), short_number(error / bound)};
  }
  if (tensor.comparison) {
    return {short_number(tensor.comparison->error),
            short_number(tensor.bound()),
            short_number(tensor.ratio())};
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
  out << "  what: " << tensor.cause() << '\n';
  write_diagnosis(out, "  ", diagnosis);
  if (const Check* const operators = tensor.find(Question::kOperator)) {
    write_operators(out, *operators);
  }
  if (tensor.fails(Question::kTooAccurate) || tensor.fails(Question::kTooCoarse)) {
    write_golden(out, *tensor.find(Question::kTooCoarse));
  }
  if (tensor.comparison) {
    write_numbers(out, tensor);
  }
  if (const std::vector<int> ranks = tensor.ranks(); !ranks.empty()) {
    out << "  concerns: " << ranks_text(ranks) << '\n';
  }
}

}  // namespace ttrace
