#include "analysis/reports/counts_text.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <utility>

namespace ttrace {

std::vector<CountRow> rows_of_counts(const Report& report) {
  const Counts counts = report.counts();
  return {{"tensors", "tensors", counts.tensors},
          {"judged", "judged", counts.judged},
          {"within_bound", "within bound", counts.within_bound},
          {"out_of_bound", "out of bound", counts.out_of_bound},
          {"missing_in_candidate", "missing in the candidate", counts.missing_in_candidate},
          {"missing_in_reference", "missing in the reference", counts.missing_in_reference},
          {"allowed_failed", "allowed out of bound", counts.allowed_failed},
          {"allowed_missing", "allowed missing", counts.allowed_missing},
          {"incomplete", "incomplete", counts.incomplete},
          {"behind_flip", "behind a flip of experts", counts.behind_flip},
          {"not_judged", "not judged", counts.not_judged},
          {"rounded", "of these rounded by the reference itself", counts.rounded},
          {"must_be_equal", "equal for dyadic inputs", counts.must_be_equal},
          {"left_out", "left out by selection", report.left_out},
          {"operators", "operators checked on their own", counts.operators, true},
          {"operators_unbounded", "of these without a bound", counts.operators_unbounded},
          {"operators_wrong", "wrong", counts.operators_wrong},
          {"inherited", "inherited", counts.inherited},
          {"golden", "compared with FP64", counts.golden, true, report.has_golden},
          {"too_accurate", "too accurate", counts.too_accurate},
          {"too_coarse", "too coarse", counts.too_coarse},
          {"noise_passes", "noise passes", static_cast<std::size_t>(report.noise_passes), true},
          {"bounds_from_noise", "bounds from noise", counts.bounds_from_noise},
          {"bounds_exact", "exact bounds", counts.bounds_exact},
          {"bounds_class_default", "class defaults", counts.bounds_class_default},
          {"bounds_asked", "bounds chosen by the user", counts.bounds_asked},
          {"edges", "inputs that a module before returned", report.edges.edges, true},
          {"edges_checked", "of these found in the candidate", report.edges.checked}};
}

std::string counts_text(const Report& report) {
  std::string text;
  const char* separator = "";
  for (const CountRow& row : rows_of_counts(report)) {
    if (row.is_of_others && !text.empty()) {
      separator = "; ";
    }
    if (row.value > 0 || row.is_told) {
      text += fmt::format("{}{} {}", std::exchange(separator, ", "), row.words, row.value);
    }
  }
  return text;
}

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
    const char* separator = "; shipped limits, where those runs had no such checks: ";
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

std::string coverage_text(const NoiseCoverage& coverage) {
  std::string text =
      fmt::format("noise reached {} of {}", coverage.reached, counted(coverage.tensors, "tensor"));
  const std::size_t untouched = coverage.untouched_tensors();
  const std::size_t equal = coverage.tensors - coverage.reached - untouched;
  if (equal > 0) {
    text += fmt::format("; {} that no pass moved must be equal", equal);
  }
  if (untouched > 0) {
    std::string kinds;
    for (const auto& [kind, count] : coverage.untouched) {
      kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, name_of(kind));
    }
    text += fmt::format("; {} ({}) {}, because code that torch does not dispatch made {}",
                        untouched,
                        kinds,
                        untouched == 1 ? "has a class default" : "have class defaults",
                        untouched == 1 ? "it" : "them");
  }
  return text;
}

}  // namespace ttrace
