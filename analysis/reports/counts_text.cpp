#include "analysis/reports/counts_text.h"

#include "analysis/findings/wording.h"
#include "analysis/reports/coverage_text.h"

#include <fmt/core.h>

#include <ostream>
#include <string>
#include <utility>

namespace ttrace {
namespace {

// Omits counts of zero, because most reports have none of these.
void write_count(std::ostream& out, std::size_t count, const char* what) {
  if (count > 0) {
    out << ", " << count << ' ' << what;
  }
}

void write_operators(std::ostream& out, const Counts& counts) {
  out << fmt::format("; operators: {} checked on their own, {} wrong, {} inherited",
                     counts.operators,
                     counts.operators_wrong,
                     counts.inherited);
  write_count(out, counts.operators_unbounded, "without a bound");
}

}  // namespace

std::string limits_text(const Report& report) {
  std::string text = "shipped defaults, not calibrated for this program";
  if (report.calibration) {
    const CalibrationUse& use = *report.calibration;
    text = fmt::format(
        "calibrated over {}; fewer than {} % of clean runs raise a false alarm (95 % confidence)",
        use.vouched
            ? fmt::format("{} that the user vouched for, of which {} raised an alarm under the "
                          "shipped limits and {} under these",
                          counted(use.runs, "run"),
                          use.alarms_shipped,
                          use.alarms)
            : counted(use.runs, "clean run"),
        short_number(100.0 * use.rate_bound));
    const char* separator = "; shipped limits, where those runs had no such tensors: ";
    for (const std::string& limit : use.shipped) {
      text += std::exchange(separator, ", ") + limit;
    }
  }
  if (report.counts().bounds_class_default > 0) {
    text += "; class defaults are weak bounds, and ";
    text += report.reference.manifest.pass == kImportedPass
                ? "files of other tools have no noise passes, which give better ones"
                : "noise passes of the reference give better ones";
  }
  return text;
}

void write_counts(std::ostream& out, const Report& report) {
  const Counts counts = report.counts();
  if (report.noise_coverage) {
    out << coverage_text(*report.noise_coverage) << '\n';
  }
  out << fmt::format(
      "{}: {} within bound, {} out of bound, {} missing in the candidate, {} missing in the "
      "reference",
      counted(counts.tensors, "tensor"),
      counts.within_bound,
      counts.out_of_bound,
      counts.missing_in_candidate,
      counts.missing_in_reference);
  write_count(out, counts.allowed_failed, "allowed out of bound");
  write_count(out, counts.allowed_missing, "allowed missing");
  write_count(out, counts.incomplete, "incomplete");
  write_count(out, counts.behind_flip, "behind a flip of experts");
  write_count(out, counts.not_judged - counts.rounded, "not judged");
  write_count(out, report.left_out, "left out by selection");
  if (report.has_residuals) {
    write_operators(out, counts);
  }
  if (report.is_dyadic) {
    out << fmt::format(
        "; dyadic inputs: {} must be equal, {} are not judged, because the reference itself rounds "
        "there",
        counts.must_be_equal,
        counts.rounded);
  }
  if (report.has_golden) {
    out << fmt::format("; golden: {} compared with FP64, {} too accurate, {} too coarse",
                       counts.golden,
                       counts.too_accurate,
                       counts.too_coarse);
  }
  if (report.edges.edges > 0) {
    out << fmt::format("; edges: {} of {} inputs are what the module before returned",
                       report.edges.checked,
                       report.edges.edges);
  }
  out << fmt::format("; bounds: {} from {}, {} exact, {} class defaults",
                     counts.bounds_from_noise,
                     counted(report.noise_passes, "noise pass"),
                     counts.bounds_exact,
                     counts.bounds_class_default);
  write_count(out, counts.bounds_asked, "chosen by the user");
  out << '\n';
}

}  // namespace ttrace
