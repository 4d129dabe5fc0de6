#include "analysis/bounds/calibration.h"

#include "analysis/findings/report.h"
#include "analysis/findings/wording.h"
#include "trace/sums/squared.h"

#include <ttrace/error.h>

#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <nlohmann/json.hpp>

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
constexpr int kSchema = 1;

void raise(RunMaxima& maxima, TensorClass tensor_class, Statistic statistic, double value) {
  if (value > 0.0) {
    double& largest = maxima[{tensor_class, statistic}];
    largest = std::max(largest, value);
  }
}

// Which statistic the terms of a check are values of.
struct StatisticTerm {
  Question question;
  std::string_view term;  // empty: the value of the check
  Statistic statistic;
};
constexpr auto kStatisticTerms = std::to_array<StatisticTerm>({
    {Question::kWhole, "q", Statistic::kWhole},
    {Question::kPart, "slice_q", Statistic::kSlice},
    {Question::kPart, "group_q", Statistic::kGroup},
    {Question::kFactor, "needed_limit", Statistic::kFactor},
    {Question::kOperator, "", Statistic::kOperator},
    {Question::kOperatorPart, "slice_q", Statistic::kOperatorSlice},
    {Question::kOperatorPart, "row_q", Statistic::kOperatorRow},
    {Question::kOperatorPart, "group_q", Statistic::kOperatorGroup},
    {Question::kOperatorFactor, "needed_limit", Statistic::kOperatorFactor},
});

// Where no limit decides: equality, class defaults, and a tensor that is nothing but noise.
bool has_limit(const Check& check) {
  return check.origin == BoundOrigin::kNoise && check.bound != 0.0 && std::isfinite(check.bound);
}

using Json = nlohmann::ordered_json;

Json json_of(const CalibrationRun& run) {
  Json json = {{"layout", Json(run.layout)}};
  if (!run.seed.empty()) {
    json["seed"] = run.seed;
  }
  return json;
}

Json json_of(const CalibratedLimit& entry) {
  return {{"class", name_of(entry.key.tensor_class)},
          {"statistic", name_of(entry.key.statistic)},
          {"runs", entry.runs},
          {"largest", entry.largest},
          {"limit", entry.limit}};
}

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  TTRACE_THROW(FormatError, file, ": ", why, "; write it again with `ttrace calibrate`");
}

// The element of `all` that is called `name`.
template <class Array>
auto named(const Array& all, const std::string& name, const std::string& file) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](auto each) { return name_of(each) == name; });
  if (found == all.end()) {
    refuse(file, "'" + name + "' is no class or statistic that this program knows");
  }
  return *found;
}

CalibratedLimit parse_limit(const nlohmann::json& json, const std::string& file) {
  CalibratedLimit entry;
  entry.key.tensor_class = named(kTensorClasses, json.at("class").get<std::string>(), file);
  entry.key.statistic = named(kStatistics, json.at("statistic").get<std::string>(), file);
  entry.runs = json.at("runs").get<std::size_t>();
  entry.largest = json.at("largest").get<double>();
  entry.limit = json.at("limit").get<double>();
  // A smaller one was not made by calibrate().
  if (!(entry.limit >= floor_of(entry.key.statistic)) || !std::isfinite(entry.limit)) {
    refuse(file,
           "the limit of " + to_string(entry.key) + " is " + short_number(entry.limit) +
               ", which must be at least " + short_number(floor_of(entry.key.statistic)));
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
    refuse(file, "it needs runs, and a rate between 0 and 1");
  }
  if (std::max(result.alarms, result.alarms_shipped) > result.runs.size()) {
    refuse(file, "it counts more alarms than runs");
  }
  return result;
}

// Whether another limit would let the check pass.
bool depends_on_limit(const Check& check) {
  const auto has_statistic = [&](const StatisticTerm& entry) {
    return entry.question == check.question;
  };
  return has_limit(check) && std::ranges::any_of(kStatisticTerms, has_statistic);
}

void refuse_findings(const Report& report, const std::string& name, Vouched vouched) {
  if (report.diverged() && vouched == Vouched::kNo) {
    TTRACE_THROW(
        UsageError,
        name,
        " diverged, first at ",
        to_string(report.tensors[*report.first_divergence].id),
        "; a calibration is made of runs that are known to be right: leave it out, or give "
        "--vouched if you know that it is right");
  }
  for (const TensorVerdict& tensor : report.tensors) {
    for (const Check& check : tensor.checks) {
      if (tensor.is_finding() && !check.holds && !depends_on_limit(check)) {
        TTRACE_THROW(UsageError,
                     name,
                     " cannot be vouched for, because no limit can excuse what was found at ",
                     to_string(tensor.id),
                     ": ",
                     check.sentence,
                     "; leave it out");
      }
    }
  }
}

std::string text_of(const std::string& file) {
  std::error_code error;
  TTRACE_CHECK(std::filesystem::is_regular_file(file, error),
               FormatError,
               "there is no calibration ",
               file,
               "; `ttrace calibrate` writes one");
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  TTRACE_CHECK(in, FormatError, "cannot read ", file);
  return text.str();
}

}  // namespace

RunMaxima run_maxima(const Report& report) {
  RunMaxima maxima;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.has(Excuse::kHarmlessScale)) {
      continue;  // far beyond any limit, and passed for another reason
    }
    for (const StatisticTerm& entry : kStatisticTerms) {
      const Check* const check = tensor.find(entry.question);
      if (check != nullptr && has_limit(*check)) {
        raise(maxima,
              tensor.tensor_class,
              entry.statistic,
              entry.term.empty() ? check->value : check->term(entry.term));
      }
    }
  }
  return maxima;
}

CleanRun clean_run(const Report& report, const std::string& name, Vouched vouched) {
  const Manifest& candidate = report.candidate.manifest;
  const std::string& precision = report.reference.manifest.precision;
  refuse_findings(report, name, vouched);
  TTRACE_CHECK(!report.undecided() && !report.partial(),
               UsageError,
               name,
               report.partial() ? " was interrupted"
                                : " is undecided, because tokens go to other "
                                  "experts than in the reference",
               "; a calibration is made of runs that are within bounds: leave it out");
  TTRACE_CHECK(candidate.precision == precision,
               UsageError,
               name,
               " compares ",
               precision,
               " with ",
               candidate.precision,
               "; a calibration is made of runs in one precision: leave it out");
  TTRACE_CHECK(report.noise_passes > 0,
               UsageError,
               name,
               " has no noise passes, which limits refer to; check it again with --noise 5");
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
  const auto k = static_cast<double>(alarms);
  const auto n = static_cast<double>(runs);
  using Beta = boost::math::beta_distribution<double>;
  // Of none, and of all, the interval has one end.
  const double doubt = alarms == 0 || alarms == runs ? kDoubt : kDoubt / 2.0;
  return {alarms == 0 ? 0.0 : boost::math::quantile(Beta(k, n - k + 1.0), doubt),
          alarms == runs
              ? 1.0
              : boost::math::quantile(boost::math::complement(Beta(k + 1.0, n - k), doubt))};
}

double Calibration::rate_bound() const {
  return rate_interval(alarms, runs.size()).to;
}

Limits Calibration::limits() const {
  Limits limits;
  for (const CalibratedLimit& entry : table) {
    limits.calibrate(entry.key, entry.limit);
  }
  return limits;
}

double floor_of(Statistic statistic) {
  return statistic < Statistic::kOperator ? 1.0 : 1.2;
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
  std::map<LimitKey, std::vector<double>> maxima;
  for (const CleanRun& run : runs) {
    TTRACE_CHECK(run.precision == result.precision,
                 UsageError,
                 runs.front().name,
                 " is in ",
                 result.precision,
                 " and ",
                 run.name,
                 " in ",
                 run.precision,
                 "; calibrate each precision on its own");
    result.noise_passes = std::min(result.noise_passes, run.noise_passes);
    result.runs.push_back({run.layout, run.seed});
    result.alarms_shipped += run.alarms ? 1 : 0;
    for (const auto& [key, value] : run.maxima) {
      maxima[key].push_back(value);
    }
  }
  TTRACE_CHECK(!maxima.empty(),
               UsageError,
               "nothing differs from the reference in ",
               counted(static_cast<std::int64_t>(runs.size()), "run", "runs"),
               ", so they say nothing about limits; give runs of a parallel program");
  const double share = rate / static_cast<double>(maxima.size());
  for (const auto& [key, values] : maxima) {
    result.table.push_back({key,
                            values.size(),
                            *std::max_element(values.begin(), values.end()),
                            calibrated_limit(values, share, floor_of(key.statistic))});
  }
  return result;
}

void write_calibration(std::ostream& out, const Calibration& calibration) {
  Json json = {
      {"format", kFormat},
      {"schema", kSchema},
      {"ttrace", TTRACE_VERSION},
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
           std::string("is no calibration: a JSON object with \"format\": \"") + kFormat +
               "\" is expected");
  }
  try {
    const int schema = json.at("schema").get<int>();
    TTRACE_CHECK(schema <= kSchema,
                 FormatError,
                 file,
                 ": was written by a newer TTrace (schema ",
                 schema,
                 ", this program reads ",
                 kSchema,
                 "); read it with that version");
    return parse(json, file);
  } catch (const nlohmann::json::exception& error) {
    refuse(file, std::string("is damaged: ") + error.what());
  }
}

void require_precision(const Calibration& calibration,
                       const Manifest& reference,
                       const Manifest& candidate) {
  for (const Manifest* manifest : {&reference, &candidate}) {
    TTRACE_CHECK(manifest->precision == calibration.precision,
                 UsageError,
                 "the calibration ",
                 calibration.source,
                 " is for ",
                 calibration.precision,
                 ", but the ",
                 manifest->pass,
                 " computed in ",
                 manifest->precision,
                 "; calibrate with runs in that precision, or leave --calibration out");
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
  for (const auto& [key, value] : run_maxima(report)) {
    if (!limits.is_calibrated(key)) {
      use.shipped.push_back(to_string(key));
    }
  }
  if (report.noise_passes < calibration.noise_passes) {
    report.remarks.push_back("the calibration is for " +
                             counted(calibration.noise_passes, "noise pass", "noise passes") +
                             ", this reference has " + std::to_string(report.noise_passes) +
                             ": bounds scatter more and may alarm more often");
  }
  report.calibration = std::move(use);
}

}  // namespace ttrace
