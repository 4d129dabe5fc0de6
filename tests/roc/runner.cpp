#include "roc/runner.h"

#include "roc/observe.h"
#include "support/check_run.h"
#include "support/run_process.h"
#include "support/task_list.h"
#include "support/today_rules.h"
#include "support/trace_digests.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
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
        references_(plan.settings.size()),
        open_(plan.settings.size()) {
    outcomes_.cleans.resize(plan.cleans.size());
    outcomes_.series.resize(plan.series.size());
    for (const CleanRun& run : plan.cleans) {
      ++open_[run.setting];
    }
  }

  Outcomes run() {
    const auto start = std::chrono::steady_clock::now();
    if (plan_.needs_training()) {
      train();
    }
    run_all(clean_tasks());
    std::vector<testing::Task> series;
    for (std::size_t i = 0; i < plan_.series.size(); ++i) {
      series.push_back({[this, i] { run_series(i); }});
    }
    run_all(series);
    outcomes_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(outcomes_);
  }

 private:
  void run_all(const std::vector<testing::Task>& tasks) const {
    testing::run_tasks(tasks, options_.jobs);
  }

  // The first clean run of a setting makes its reference, the others wait for that.
  [[nodiscard]] std::vector<testing::Task> clean_tasks() {
    std::vector<testing::Task> tasks;
    std::map<std::size_t, std::size_t> first;  // task by setting
    for (std::size_t i = 0; i < plan_.cleans.size(); ++i) {
      const auto [made, is_first] = first.emplace(plan_.cleans[i].setting, i);
      tasks.push_back({[this, i, is_first = is_first] { run_clean(i, is_first); },
                       is_first ? std::nullopt : std::optional(made->second)});
    }
    return tasks;
  }

  void announce(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (options_.progress) {
      options_.progress(started_, plan_.cleans.size() + plan_.series.size(), what);
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
    testing::ProcessOptions process;
    process.arguments = {options_.bin + "/ttrace_reference",
                         "--config",
                         config,
                         "--precision",
                         "bf16",
                         "--steps",
                         std::to_string(steps)};
    process.environment = {{"OMP_NUM_THREADS", "1"},
                           {"TTRACE_PASS", "reference"},
                           {"TTRACE_DIR", trained()},
                           {"TTRACE_STEPS", std::to_string(steps - 1)},
                           {"TTRACE_FILTER", "/param_next/"}};
    const testing::ProcessResult result = testing::run_process(process);
    TTRACE_CHECK(result.exit_code == 0, UsageError, "the training failed: ", result.err);
  }

  [[nodiscard]] std::string folder_of(std::size_t setting) const {
    return options_.work + "/" + std::to_string(setting);
  }

  [[nodiscard]] testing::CheckRequest request_for(std::size_t index,
                                                  const std::string& name,
                                                  const std::string& options) const {
    const Setting& setting = plan_.settings[index];
    const std::string folder = folder_of(index);
    const testing::TrainingRun training{
        .config = folder + "/config.yaml", .precision = setting.precision, .seed = setting.seed};
    const std::string command = testing::reference_command(options_.bin, training);
    const bool stored = !references_[index].empty();
    return {.program = options_.bin + "/ttrace",
            .reference = stored ? references_[index] : command,
            .rerun = stored ? command : "",
            .candidate =
                testing::candidate_command(options_.bin, options_.run_ranks, training, options),
            .folder = folder + "/" + name,
            .noise = plan_.noise,
            .timeout_s = options_.timeout_s};
  }

  void run_clean(std::size_t index, bool makes_reference) {
    judge_clean(index, makes_reference);
    const std::size_t setting = plan_.cleans[index].setting;
    const auto& seeds = plan_.seeds;
    const bool has_mutants =
        std::find(seeds.begin(), seeds.end(), plan_.settings[setting].seed) != seeds.end();
    if (--open_[setting] == 0 && !has_mutants) {
      remove(folder_of(setting));
    }
  }

  void judge_clean(std::size_t index, bool makes_reference) {
    const CleanRun& run = plan_.cleans[index];
    const Setting& setting = plan_.settings[run.setting];
    announce("clean run, " + describe(setting) + ", " + run.layout);
    Observation& clean = outcomes_.cleans[index];
    if (makes_reference) {
      write_config(run.setting);
    } else if (references_[run.setting].empty()) {
      clean.problem = "its reference failed";
      return;
    }
    const auto request = request_for(run.setting, "clean-" + std::to_string(index), run.layout);
    testing::Digests digests;
    clean = judge(request, {}, digests);
    if (!makes_reference) {
      remove(request.folder);
      return;
    }
    // A reference with all its noise stands even where the candidate failed.
    if (fs::exists(request.folder + "/logs/candidate.log")) {
      references_[run.setting] = request.folder + "/reference";
    }
    clean_digests_[run.setting] = std::move(digests);
    remove(request.folder + "/candidate");
  }

  void write_config(std::size_t index) const {
    testing::ConfigChanges changes = plan_.config;
    if (plan_.settings[index].weights == Weights::kTrained) {
      changes["start"] = trained();
    }
    fs::create_directories(folder_of(index));
    testing::write_derived_config(options_.base, changes, folder_of(index) + "/config.yaml");
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
      cleans.push_back(outcomes_.cleans[settings.back()]);  // in the plan's layout
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
                    plan_.layout + " --mutant " + series.mutant + " --mutant-size " + size +
                        (series.layer ? " --mutant-layer " + std::to_string(*series.layer) : ""));
    testing::Digests digests;
    Observation observation = judge(request, places_of(series), digests);
    observation.changed = digests != clean_digests_[setting];
    remove(request.folder);
    const std::lock_guard lock(mutex_);
    ++outcomes_.runs;
    return observation;
  }

  // `places`: where a find counts.
  Observation judge(const testing::CheckRequest& request,
                    const Places& places,
                    testing::Digests& digests) {
    const testing::CheckResult result = testing::run_check(request);
    const testing::CheckResult without_forced =
        result.problem.empty() ? testing::judge_without_forced(request) : testing::CheckResult{};
    Observation observation{.problem =
                                result.problem.empty() ? without_forced.problem : result.problem};
    if (!observation.problem.empty()) {
      return observation;
    }
    add_check(result.report, places, observation);
    add_without_forced(without_forced.report, places, observation);
    const auto [reference, candidate] = open(request);
    digests = testing::digests_of(candidate);
    add_rules(testing::apply_rules(reference, candidate), places, observation);
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
  std::vector<std::string> references_;          // folders by setting; empty if one failed
  std::vector<std::atomic<std::size_t>> open_;   // clean runs of a setting that are not judged yet
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
