#include "analysis/bounds/calibration.h"

#include "analysis/findings/json_text.h"
#include "analysis/findings/report.h"
#include "analysis/findings/wording.h"
#include "trace/base/version.h"
#include "trace/sums/squared.h"

#include <ttrace/error.h>

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <ostream>
#include <sstream>
#include <string_view>

namespace ttrace {
namespace {

constexpr double kUsualDeviation = 0.2;  // of logarithms
constexpr double kUsualWeight = 5.0;     // in runs
constexpr double kLargestMargin = 1.1;
constexpr double kDoubt = 0.05;

constexpr const char* kFormat = "ttrace calibration";
constexpr int kSchema = 2;

// Whose kernel factor a check depends on.
std::optional<Statistic> statistic_of(Question question) {
  switch (question) {
    case Question::kWhole:
    case Question::kPart:
      return Statistic::kOfReference;
    case Question::kFactor:
      return Statistic::kFactorOfReference;
    case Question::kOperator:
    case Question::kOperatorPart:
      return Statistic::kOfOperators;
    case Question::kOperatorFactor:
      return Statistic::kFactorOfOperators;
    default:
      return std::nullopt;
  }
}

// Where no limit decides: equality, class defaults, and a tensor that is nothing but noise.
bool has_limit(const Check& check) {
  return check.origin == BoundOrigin::kNoise && check.bound != 0.0 && std::isfinite(check.bound);
}

Json json_of(const CalibrationRun& run) {
  Json json = {{"layout", Json(run.layout)}};
  if (!run.seed.empty()) {
    json["seed"] = run.seed;
  }
  return json;
}

Json json_of(const CalibratedLimit& entry) {
  return {{"statistic", name_of(entry.statistic)},
          {"runs", entry.runs},
          {"largest", entry.largest},
          {"limit", entry.limit}};
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  TTRACE_THROW(FormatError,
               fmt::format("{}: {}; write it again with `ttrace calibrate`", file, why));
}

Statistic statistic_called(const std::string& name, const std::string& file) {
  const auto found = std::ranges::find_if(
      kStatistics, [&](Statistic statistic) { return name_of(statistic) == name; });
  if (found == kStatistics.end()) {
    refuse(file, fmt::format("'{}' is not a statistic that this program knows", name));
  }
  return *found;
}

CalibratedLimit parse_limit(const nlohmann::json& json, const std::string& file) {
  CalibratedLimit entry;
  entry.statistic = statistic_called(json.at("statistic").get<std::string>(), file);
  entry.runs = json.at("runs").get<std::size_t>();
  entry.largest = json.at("largest").get<double>();
  entry.limit = json.at("limit").get<double>();
  // A smaller one was not made by calibrate().
  if (!(entry.limit >= kLeastFactor) || !std::isfinite(entry.limit)) {
    refuse(file,
           fmt::format("the limit of {} is {}, but it must be at least {}",
                       name_of(entry.statistic),
                       short_number(entry.limit),
                       short_number(kLeastFactor)));
  }
  return entry;
}

Calibration parse(const nlohmann::json& json, const std::string& file) {
  Calibration result;
  result.source = file;
  result.precision = json.at("precision").get<std::string>();
  result.noise_passes = json.at("noise_passes").get<int>();
  result.rate = json.at("rate").get<double>();
  for (const auto& run : json.at("runs")) {
    result.runs.push_back({run.at("layout").get<Section>(), run.value("seed", "")});
  }
  result.vouched = json.value("vouched", false) ? Vouched::kYes : Vouched::kNo;
  if (const auto alarms = json.find("alarms"); alarms != json.end()) {  // since it is counted
    result.alarms_shipped = alarms->at("shipped").get<std::size_t>();
    result.alarms = alarms->at("these").get<std::size_t>();
  }
  for (const auto& entry : json.at("limits")) {
    result.table.push_back(parse_limit(entry, file));
  }
  if (result.runs.empty() || !(result.rate > 0.0 && result.rate < 1.0)) {
    refuse(file, "the calibration needs runs, and a rate between 0 and 1");
  }
  if (std::max(result.alarms, result.alarms_shipped) > result.runs.size()) {
    refuse(file, "it counts more alarms than runs");
  }
  return result;
}

// Whether another limit would let the check pass.
bool depends_on_limit(const Check& check) {
  return has_limit(check) && statistic_of(check.question).has_value();
}

void refuse_findings(const Report& report, const std::string& name, Vouched vouched) {
  if (report.diverged() && vouched == Vouched::kNo) {
    TTRACE_THROW(
        UsageError,
        fmt::format("{} diverged, first at {}; limits need runs that are known to be right, so "
                    "leave it out, or pass --vouched if you know that it is right",
                    name,
                    to_string(report.tensors[*report.first_divergence].id)));
  }
  for (const TensorVerdict& tensor : report.tensors) {
    for (const Check& check : tensor.checks) {
      if (tensor.is_finding() && !check.holds && !depends_on_limit(check)) {
        TTRACE_THROW(UsageError,
                     fmt::format("{} cannot be vouched for, because no limit can excuse the "
                                 "finding at {}: {}; leave it out",
                                 name,
                                 to_string(tensor.id),
                                 check.sentence));
      }
    }
  }
}

std::string text_of(const std::string& file) {
  std::error_code error;
  TTRACE_CHECK(std::filesystem::is_regular_file(file, error),
               FormatError,
               fmt::format("there is no calibration {}; `ttrace calibrate` writes one", file));
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  TTRACE_CHECK(
      in, FormatError, fmt::format("cannot read the calibration {}; check its permissions", file));
  return text.str();
}

}  // namespace

RunMaxima run_maxima(const Report& report) {
  RunMaxima maxima;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.has(Excuse::kHarmlessScale)) {
      continue;  // far beyond any limit, and passed for another reason
    }
    for (const Check& check : tensor.checks) {
      const auto statistic = statistic_of(check.question);
      const auto factor = check.find(Term::kKernelFactor);
      if (statistic && factor && has_limit(check)) {
        const double taken = check.share() * *factor;
        if (taken > 0.0) {
          double& largest = maxima[*statistic];
          largest = std::max(largest, taken);
        }
      }
    }
  }
  return maxima;
}

CleanRun clean_run(const Report& report, const std::string& name, Vouched vouched) {
  const Manifest& candidate = report.candidate.manifest;
  const std::string& precision = report.reference.manifest.precision;
  refuse_findings(report, name, vouched);
  TTRACE_CHECK(
      !report.undecided() && !report.partial(),
      UsageError,
      fmt::format("{} {}; limits need runs that are within bounds, so leave it out",
                  name,
                  report.partial()
                      ? "was interrupted"
                      : "is undecided, because tokens go to other experts than in the reference"));
  TTRACE_CHECK(
      candidate.precision == precision,
      UsageError,
      fmt::format("{} compares {} with {}; limits need runs in one precision, so leave it out",
                  name,
                  precision,
                  candidate.precision));
  TTRACE_CHECK(report.noise_passes > 0,
               UsageError,
               fmt::format("{} has no noise passes, but limits are multiples of their noise; check "
                           "it again with --noise 5",
                           name));
  const auto seed = candidate.data.find("seed");
  return {.name = name,
          .precision = precision,
          .noise_passes = report.noise_passes,
          .layout = candidate.layout,
          .seed = seed == candidate.data.end() ? "" : seed->second,
          .maxima = run_maxima(report),
          .alarms = report.diverged()};
}

RateInterval rate_interval(std::size_t alarms, std::size_t runs) {
  using Binomial = boost::math::binomial_distribution<double>;
  const auto events = static_cast<double>(alarms);
  const auto trials = static_cast<double>(runs);
  // If no run alarms, or all do, the interval has one end.
  const double doubt = alarms == 0 || alarms == runs ? kDoubt : kDoubt / 2.0;
  return {Binomial::find_lower_bound_on_p(trials, events, doubt),
          Binomial::find_upper_bound_on_p(trials, events, doubt)};
}

double Calibration::rate_bound() const {
  return rate_interval(alarms, runs.size()).to;
}

Limits Calibration::limits(const Allowances& allowances) const {
  Limits limits(allowances);
  for (const CalibratedLimit& entry : table) {
    limits.calibrate(entry.statistic, entry.limit);
  }
  return limits;
}

double calibrated_limit(std::span<const double> maxima, double share, double floor) {
  const auto count = static_cast<double>(maxima.size());
  double mean = 0.0;
  for (const double value : maxima) {
    mean += std::log(value) / count;
  }
  double squares = kUsualWeight * squared(kUsualDeviation);
  for (const double value : maxima) {
    squares += squared(std::log(value) - mean);
  }
  const double degrees = count - 1.0 + kUsualWeight;
  const boost::math::students_t next(degrees);
  const double t = boost::math::quantile(boost::math::complement(next, share));
  const double fitted = std::exp(mean + t * std::sqrt(squares / degrees * (1.0 + 1.0 / count)));
  const double largest = *std::max_element(maxima.begin(), maxima.end());
  return std::max({fitted, kLargestMargin * largest, floor});
}

Calibration calibrate(std::span<const CleanRun> runs, double rate, Vouched vouched) {
  Calibration result;
  result.vouched = vouched;
  result.precision = runs.front().precision;
  result.noise_passes = runs.front().noise_passes;
  result.rate = rate;
  std::map<Statistic, std::vector<double>> maxima;
  for (const CleanRun& run : runs) {
    TTRACE_CHECK(run.precision == result.precision,
                 UsageError,
                 fmt::format("{} is in {}, but {} is in {}; calibrate each precision on its own",
                             runs.front().name,
                             result.precision,
                             run.name,
                             run.precision));
    result.noise_passes = std::min(result.noise_passes, run.noise_passes);
    result.runs.push_back({run.layout, run.seed});
    result.alarms_shipped += run.alarms ? 1 : 0;
    for (const auto& [statistic, value] : run.maxima) {
      maxima[statistic].push_back(value);
    }
  }
  TTRACE_CHECK(!maxima.empty(),
               UsageError,
               fmt::format("nothing differs from the reference in {}, so no limit follows; give "
                           "runs of a parallel program",
                           counted(runs.size(), "run")));
  const double share = rate / static_cast<double>(maxima.size());
  for (const auto& [statistic, values] : maxima) {
    result.table.push_back({statistic,
                            values.size(),
                            *std::max_element(values.begin(), values.end()),
                            calibrated_limit(values, share, kLeastFactor)});
  }
  return result;
}

void write_calibration(std::ostream& out, const Calibration& calibration) {
  Json json = {
      {"format", kFormat},
      {"schema", kSchema},
      {"ttrace", own_version()},
      {"precision", calibration.precision},
      {"noise_passes", calibration.noise_passes},
      {"rate", calibration.rate},
      {"rate_bound_95", calibration.rate_bound()},
      {"vouched", calibration.vouched == Vouched::kYes},
      {"alarms", {{"shipped", calibration.alarms_shipped}, {"these", calibration.alarms}}}};
  json["runs"] = Json::array();
  for (const CalibrationRun& run : calibration.runs) {
    json["runs"].push_back(json_of(run));
  }
  json["limits"] = Json::array();
  for (const CalibratedLimit& entry : calibration.table) {
    json["limits"].push_back(json_of(entry));
  }
  out << json.dump(1, ' ', false, Json::error_handler_t::replace) << '\n';
}

Calibration read_calibration(const std::string& file) {
  const auto json = nlohmann::json::parse(text_of(file), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", nlohmann::json()) != kFormat) {
    refuse(file,
           fmt::format("this is not a calibration, which is a JSON object with \"format\": \"{}\"",
                       kFormat));
  }
  try {
    const int schema = json.at("schema").get<int>();
    TTRACE_CHECK(schema <= kSchema,
                 FormatError,
                 fmt::format("{}: a newer TTrace wrote it (schema {}, but this program reads {}); "
                             "read it with that version",
                             file,
                             schema,
                             kSchema));
    if (schema < kSchema) {
      refuse(file, "an earlier TTrace wrote it, with limits by class of tensors");
    }
    return parse(json, file);
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("the calibration is damaged: {}", error.what()));
  }
}

void require_precision(const Calibration& calibration,
                       const Manifest& reference,
                       const Manifest& candidate) {
  for (const Manifest* manifest : {&reference, &candidate}) {
    TTRACE_CHECK(manifest->precision == calibration.precision,
                 UsageError,
                 fmt::format("the calibration {} is for {}, but the {} computed in {}; calibrate "
                             "with runs in that precision, or leave --calibration out",
                             calibration.source,
                             calibration.precision,
                             manifest->pass,
                             manifest->precision));
  }
}

void note_calibration(const Calibration& calibration, Report& report) {
  CalibrationUse use{.runs = calibration.runs.size(),
                     .rate = calibration.rate,
                     .rate_bound = calibration.rate_bound(),
                     .vouched = calibration.vouched == Vouched::kYes,
                     .alarms_shipped = calibration.alarms_shipped,
                     .alarms = calibration.alarms};
  const Limits limits = calibration.limits();
  for (const auto& [statistic, value] : run_maxima(report)) {
    if (!limits.is_calibrated(statistic)) {
      use.shipped.emplace_back(name_of(statistic));
    }
  }
  if (report.noise_passes < calibration.noise_passes) {
    report.remarks.push_back(
        fmt::format("the calibration is for {}, but this reference has {}; bounds scatter more, so "
                    "false alarms may be more frequent",
                    counted(calibration.noise_passes, "noise pass"),
                    report.noise_passes));
  }
  report.calibration = std::move(use);
}

}  // namespace ttrace
