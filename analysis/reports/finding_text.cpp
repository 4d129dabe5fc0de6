#include "analysis/reports/finding_text.h"

#include "analysis/findings/wording.h"
#include "trace/base/precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>
#include <string_view>

namespace ttrace {
namespace {

// Empty where all were finite, or only single elements were not.
std::string not_finite_text(const Report& report) {
  return report.not_finite == 0
             ? ""
             : fmt::format("; {} of {} {} not finite on both sides and {} not compared",
                           report.not_finite,
                           counted(report.tensors.size(), "tensor"),
                           report.not_finite == 1 ? "is" : "are",
                           report.not_finite == 1 ? "was" : "were");
}

// How much of what was recorded the verdict rests on.
std::string share_text(const Report& report) {
  const Counts counts = report.counts();
  const std::size_t operators = counts.operators + counts.operators_unbounded;
  std::string text =
      fmt::format("{} of {} judged", counts.judged, counted(counts.tensors, "tensor"));
  if (operators > 0) {
    text += fmt::format(", {} of {}", counts.operators, counted(operators, "operator"));
  }
  return text + not_finite_text(report);
}

std::vector<std::string> row_of(const TensorVerdict& tensor,
                                double error,
                                double bound,
                                double ratio) {
  return {to_string(tensor.id),
          short_number(error),
          short_number(bound),
          short_number(ratio),
          short_cause(tensor)};
}

// The numbers that decided.
std::vector<std::string> row_of(const TensorVerdict& tensor) {
  if (tensor.symptom() == Symptom::kSlice) {
    const Check& part = *tensor.find(Question::kPart);
    return row_of(tensor, part.value, part.bound, part.share());
  }
  if (tensor.tier() == Tier::kGolden) {
    const Check& golden = *tensor.find(Question::kTooCoarse);
    const double error = golden.term(Term::kCandidateError);
    const double bound = golden.term(golden.holds ? Term::kLeastRho : Term::kLargestRho) *
                         golden.term(Term::kReferenceError);
    return row_of(tensor, error, bound, error / bound);
  }
  if (tensor.comparison) {
    return row_of(tensor, tensor.comparison->error, tensor.bound(), tensor.ratio());
  }
  return {to_string(tensor.id), "-", "-", "-", short_cause(tensor)};
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

FindingTable findings_of(const Report& report, bool allowed, std::size_t max_rows) {
  FindingTable table;
  for (const TensorVerdict& tensor : report.tensors) {
    // One that is allowed to be missing has no numbers to list.
    const bool listed =
        allowed ? tensor.allowed() && tensor.status() == Status::kDiverged : tensor.is_finding();
    if (listed && table.rows.size() < max_rows) {
      table.rows.push_back(row_of(tensor));
    } else {
      table.left_out += listed ? 1 : 0;
    }
  }
  return table;
}

std::string_view whose_norm(const TensorVerdict& tensor) {
  const bool of_first_forward =
      !tensor.is_in_reference && tensor.find(Question::kRecompute) != nullptr;
  return of_first_forward ? "the first forward's" : "the reference's";
}

std::string spaced(std::string_view name) {
  std::string text(name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

std::string cause_text(Signature signature, std::string_view sentence) {
  return fmt::format("{}: {}", spaced(name_of(signature)), sentence);
}

void write_diagnosis(std::ostream& out, std::string_view indent, const Diagnosis& diagnosis) {
  const auto write = [&](std::string_view title, const auto& cause) {
    out << indent << title << ": " << cause_text(cause.signature, cause.sentence) << '\n';
  };
  write("cause", diagnosis);
  if (diagnosis.runner_up) {
    write("or", *diagnosis.runner_up);
  }
}

std::string bound_text(const TensorVerdict& tensor) {
  if (const Check* const asked = tensor.find(Question::kTolerance)) {
    return fmt::format(
        "|c - r| <= {} + {} |r| at every element, from {}; {} of {} elements exceed it",
        short_number(asked->term(Term::kAtol)),
        short_number(asked->term(Term::kRtol)),
        asked->source,
        asked->term(Term::kBeyond),
        tensor.comparison->elements);
  }
  const std::string source = tensor.bound_source();
  return tensor.bound() > 0.0 ? fmt::format("{} from {}; relative errors below {} go unseen",
                                            short_number(tensor.bound()),
                                            source,
                                            short_number(tensor.detectable()))
                              : "0, " + source;
}

std::string precision_text(const Side& side) {
  const Precision* const declared = find_precision(side.manifest.precision);
  return declared == nullptr || !side.computes_in || *side.computes_in == declared->stored
             ? side.manifest.precision
             : fmt::format("parameters {}, activations {}",
                           name_of(declared->stored),
                           name_of(*side.computes_in));
}

std::string headline(const Report& report) {
  const std::string reserved = reservation(report);
  return report.partial()
             ? fmt::format(
                   "PARTIAL: {}; {}", report.diverged() ? "DIVERGED" : "clean so far", reserved)
         : report.diverged()                ? "DIVERGED"
         : !report.why_not_judged().empty() ? "NOT JUDGED: " + reserved
         : !reserved.empty()                ? "UNDECIDED: " + reserved
                                            : "CLEAN: " + share_text(report);
}

std::string reservation(const Report& report) {
  if (report.partial()) {
    return "the verdict covers only what was written before the interruption";
  }
  const std::string why = report.why_not_judged();
  return !why.empty()         ? why + not_finite_text(report)
         : report.undecided() ? "all differences depend on tokens that go to other experts"
                              : "";
}

}  // namespace ttrace
