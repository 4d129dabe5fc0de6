#include "fuzz_layouts/judge.h"

#include "support/check_run.h"
#include "support/report_json.h"

#include <ttrace/tensor_id.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>
#include <vector>

namespace ttrace::fuzz_layouts {

std::string_view name_of(Judgement judgement) {
  switch (judgement) {
    case Judgement::kClean:
      return "clean";
    case Judgement::kNoVerdict:
      return "no verdict";
    case Judgement::kFinding:
      return "finding";
    case Judgement::kTooFar:
      return "too far";
  }
  return "";
}

Distance largest_distance(const nlohmann::json& tensors) {
  std::map<Kind, double> largest;
  for (const auto& tensor : tensors) {
    double& norm = largest[parse_tensor_id(tensor.at("id").get<std::string>()).kind];
    norm = std::max(norm, testing::number_of(tensor.at("reference_norm")));
  }
  Distance worst;
  for (const auto& tensor : tensors) {
    if (tensor.at("error").is_null()) {
      continue;  // on one side only, as what stages send: whether that is right is the verdict's
    }
    const std::string id = tensor.at("id");
    const double error = testing::number_of(tensor.at("error"));
    const double scale = std::max(testing::number_of(tensor.at("reference_norm")),
                                  1e-3 * largest[parse_tensor_id(id).kind]);
    // Negated, so that NaN is worse than anything; a tensor of zeros that is right is right.
    if (error != 0.0 && !(error / scale <= worst.value)) {
      worst = {error / scale, id};
      if (std::isnan(worst.value)) {
        break;
      }
    }
  }
  return worst;
}

void add_parts(const nlohmann::json& tensors, PartsByKind& parts) {
  const auto raise = [](double& largest, double error, const nlohmann::json& bound) {
    largest = std::max(largest, error / testing::number_of(bound));
  };
  for (const auto& tensor : tensors) {
    const Kind kind = parse_tensor_id(tensor.at("id").get<std::string>()).kind;
    NearestParts& nearest = parts[std::string(ttrace::name_of(kind))];
    if (const auto part = testing::asked(tensor, "slice"); !part.is_null()) {
      const bool row = part.value("where", "").starts_with("row");
      raise(row ? nearest.slice : nearest.group,
            testing::number_of(part.at("value")),
            part.at("bound"));
    }
    if (const auto golden = testing::asked(tensor, "too_coarse"); !golden.is_null()) {
      const auto& terms = golden.at("terms");
      const double ratio = testing::number_of(terms.at("rho"));
      NearestParts rho;
      rho.least_rho = testing::number_of(terms.at("least_rho")) > 0.0 ? ratio : 0.0;
      rho.largest_rho = testing::number_of(terms.at("largest_rho")) > 0.0 ? ratio : 0.0;
      add_rho(rho, nearest);
    }
    if (const auto factor = testing::asked(tensor, "factor"); !factor.is_null()) {
      raise(nearest.factor, std::abs(testing::number_of(factor.at("value"))), factor.at("bound"));
    }
  }
}

void add_rho(const NearestParts& from, NearestParts& to) {
  if (from.least_rho > 0.0) {
    to.least_rho = to.least_rho > 0.0 ? std::min(to.least_rho, from.least_rho) : from.least_rho;
  }
  to.largest_rho = std::max(to.largest_rho, from.largest_rho);
}

CaseResult judge(const Case& layout, const std::string& folder, const JudgeOptions& options) {
  std::filesystem::create_directories(folder);
  const testing::TrainingRun training{.config = folder + "/config.yaml",
                                      .precision = layout.precision,
                                      .seed = layout.seed,
                                      .steps = layout.steps};
  testing::write_derived_config(options.base, changes_of(layout), training.config);
  const testing::CheckResult check = testing::run_check(
      {.program = options.bin + "/ttrace",
       .reference = testing::reference_command(options.bin, training),
       .candidate =
           testing::candidate_command(options.bin, options.run_ranks, training, options_of(layout)),
       .folder = folder + "/check",
       .steps = layout.steps,
       .noise = options.noise,
       .timeout_s = options.timeout_s,
       .options = options.golden ? std::vector<std::string>{"--golden", "--no-forced"}
                                 : std::vector<std::string>{}});
  CaseResult result;
  result.seconds = check.seconds;
  if (!check.problem.empty()) {
    return {Judgement::kNoVerdict, check.problem, 0.0, check.seconds};
  }
  add_parts(check.report.at("tensors"), result.parts);
  std::ostringstream detail;
  if (layout.precision == "f64") {
    const Distance worst = largest_distance(check.report.at("tensors"));
    result.distance = worst.value;
    if (!(worst.value <= kFarInF64)) {
      result.judgement = Judgement::kTooFar;
      detail << worst.id << " is off by " << worst.value;
    }
  }
  if (check.diverged) {
    result.judgement = Judgement::kFinding;
    detail.str("");
    detail << check.first_id << ", error / bound " << check.error_over_bound << ", "
           << check.report.at("first_divergence").at("cause").get<std::string>();
  }
  result.detail = detail.str();
  return result;
}

}  // namespace ttrace::fuzz_layouts
