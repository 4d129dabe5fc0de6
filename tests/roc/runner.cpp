#include "roc/runner.h"

#include "roc/observe.h"
#include "support/check_run.h"
#include "support/run_process.h"
#include "support/task_list.h"
#include "support/today_rules.h"
#include "support/trace_digests.h"

#include <ttrace/error.h>
#include <ttrace/trace_reader.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <utility>

namespace fs = std::filesystem;

namespace ttrace::roc {
namespace {

std::string number_text(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

class Runner {
 public:
  Runner(const Plan& plan, const RunOptions& options)
      : plan_(plan),
        options_(options),
        clean_digests_(plan.settings.size()),
        references_(plan.settings.size()) {
    outcomes_.cleans.resize(plan.settings.size());
    outcomes_.series.resize(plan.series.size());
  }

  Outcomes run() {
    const auto start = std::chrono::steady_clock::now();
    if (plan_.needs_training()) {
      train();
    }
    run_all(plan_.settings.size(), [this](std::size_t i) { run_clean(i); });
    run_all(plan_.series.size(), [this](std::size_t i) { run_series(i); });
    outcomes_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(outcomes_);
  }

 private:
  void run_all(std::size_t count, const std::function<void(std::size_t)>& work) const {
    std::vector<testing::Task> tasks;
    for (std::size_t i = 0; i < count; ++i) {
      tasks.push_back({[&work, i] { work(i); }});
    }
    testing::run_tasks(tasks, options_.jobs);
  }

  void announce(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (options_.progress) {
      options_.progress(started_, plan_.settings.size() + plan_.series.size(), what);
    }
    ++started_;
  }

  [[nodiscard]] std::string trained() const { return options_.work + "/trained"; }

  // A trace of the last step of a reference run; `start` takes parameters from it. The weights lie
  // on BF16's grid, so that all precisions start equal.
  void train() {
    const std::string config = options_.work + "/training.yaml";
    testing::write_derived_config(options_.base, plan_.config, config);
    const int steps = plan_.training_steps;
    const auto result =
        testing::run_process({.arguments = {options_.bin + "/ttrace_reference",
                                            "--config",
                                            config,
                                            "--precision",
                                            "bf16",
                                            "--steps",
                                            std::to_string(steps)},
                              .environment = {{"OMP_NUM_THREADS", "1"},
                                              {"TTRACE_PASS", "reference"},
                                              {"TTRACE_DIR", trained()},
                                              {"TTRACE_STEPS", std::to_string(steps - 1)},
                                              {"TTRACE_FILTER", "/param_next/"}},
                              .timeout = std::chrono::seconds(options_.timeout_s * 10)});
    TTRACE_CHECK(result.exit_code == 0, UsageError, "the training failed: ", result.err);
  }

  [[nodiscard]] std::string folder_of(std::size_t setting) const {
    return options_.work + "/" + std::to_string(setting);
  }

  [[nodiscard]] testing::CheckRequest request_for(std::size_t index,
                                                  const std::string& name,
                                                  const std::string& more) const {
    const Setting& setting = plan_.settings[index];
    const std::string folder = folder_of(index);
    const testing::TrainingRun training{
        .config = folder + "/config.yaml", .precision = setting.precision, .seed = setting.seed};
    const std::string command = testing::reference_command(options_.bin, training);
    const bool stored = !references_[index].empty();
    return {.program = options_.bin + "/ttrace",
            .reference = stored ? references_[index] : command,
            .rerun = stored ? command : "",
            .candidate = testing::candidate_command(
                             options_.bin, options_.run_ranks, training, plan_.layout) +
                         more,
            .folder = folder + "/" + name,
            .noise = plan_.noise,
            .timeout_s = options_.timeout_s};
  }

  void run_clean(std::size_t index) {
    const Setting& setting = plan_.settings[index];
    announce("reference and clean run, " + describe(setting));
    fs::create_directories(folder_of(index));
    testing::ConfigChanges changes = plan_.config;
    if (setting.weights == Weights::kTrained) {
      changes["start"] = trained();
    }
    testing::write_derived_config(options_.base, changes, folder_of(index) + "/config.yaml");
    const auto request = request_for(index, "clean", "");
    testing::Digests digests;
    outcomes_.cleans[index] = judge(request, digests);
    // A reference with all its noise stands even where the candidate failed.
    if (fs::exists(request.folder + "/logs/candidate.log")) {
      references_[index] = request.folder + "/reference";
    }
    clean_digests_[index] = std::move(digests);
    remove(request.folder + "/candidate");
  }

  void run_series(std::size_t index) {
    const Series& series = plan_.series[index];
    announce(describe(series));
    const std::vector<double> magnitudes = magnitudes_of(plan_, series);
    std::vector<std::size_t> settings;
    std::vector<Observation> cleans;
    for (const int seed : plan_.seeds) {
      const Setting wanted{series.precision, series.weights, seed};
      settings.push_back(
          static_cast<std::size_t>(std::find(plan_.settings.begin(), plan_.settings.end(), wanted) -
                                   plan_.settings.begin()));
      cleans.push_back(outcomes_.cleans[settings.back()]);
    }
    Search search(magnitudes.size(), cleans, [&](std::size_t magnitude, std::size_t batch) {
      return run_mutant(index, settings[batch], magnitudes[magnitude]);
    });
    outcomes_.series[index] = outcome_of(search, magnitudes);
  }

  Observation run_mutant(std::size_t series_index, std::size_t setting, double magnitude) {
    const Series& series = plan_.series[series_index];
    const std::string size = number_text(magnitude);
    const auto request =
        request_for(setting,
                    std::to_string(series_index) + "-" + size,
                    " --mutant " + series.mutant + " --mutant-size " + size +
                        (series.layer ? " --mutant-layer " + std::to_string(*series.layer) : ""));
    testing::Digests digests;
    Observation observation = judge(request, digests);
    observation.changed = digests != clean_digests_[setting];
    remove(request.folder);
    const std::lock_guard lock(mutex_);
    ++outcomes_.runs;
    return observation;
  }

  Observation judge(const testing::CheckRequest& request, testing::Digests& digests) {
    const testing::CheckResult result = testing::run_check(request);
    Observation observation{.problem = result.problem};
    if (!result.problem.empty()) {
      return observation;
    }
    add_tiers(result.report, observation);
    const auto [reference, candidate] = open(request);
    digests = testing::digests_of(candidate);
    add_rules(testing::apply_rules(reference, candidate), observation);
    return observation;
  }

  // HDF5 bears one thread at a time; what is read afterwards lies in memory.
  [[nodiscard]] std::pair<Trace, Trace> open(const testing::CheckRequest& request) {
    const std::lock_guard lock(mutex_);
    // A folder where the reference is stored, else the check has made it.
    Trace reference = Trace::open(
        fs::is_directory(request.reference) ? request.reference : request.folder + "/reference");
    return {std::move(reference), Trace::open(request.folder + "/candidate")};
  }

  void remove(const std::string& folder) const {
    if (!options_.keep) {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  }

  const Plan& plan_;
  const RunOptions& options_;
  std::vector<testing::Digests> clean_digests_;  // by setting
  std::vector<std::string> references_;          // folders by setting; empty where one failed
  std::mutex mutex_;  // guards HDF5, started_, the callback and the number of runs
  std::size_t started_ = 0;
  Outcomes outcomes_;
};

}  // namespace

SeriesOutcome outcome_of(Search& search, const std::vector<double>& magnitudes) {
  SeriesOutcome outcome;
  for (const auto& [detector, index] : search.smallest()) {
    outcome.smallest[detector] = index ? std::optional(magnitudes[*index]) : std::nullopt;
  }
  std::map<std::size_t, Point> points;
  for (const auto& [where, seen] : search.observations()) {
    Point& point = points[where.first];
    point.magnitude = magnitudes[where.first];
    if (!seen.problem.empty()) {
      outcome.problems.push_back(seen.problem);
      continue;
    }
    ++point.runs;
    point.changed += seen.changed ? 1 : 0;
    for (const std::string& detector : seen.flagged) {
      ++point.flagged[detector];
    }
  }
  for (const auto& [index, point] : points) {
    outcome.points.push_back(point);
  }
  return outcome;
}

Outcomes run_plan(const Plan& plan, const RunOptions& options) {
  return Runner(plan, options).run();
}

}  // namespace ttrace::roc
