#include "scoreboard/runner.h"

#include "support/check_run.h"
#include "support/task_list.h"
#include "support/today_rules.h"
#include "support/trace_digests.h"
#include "trace/file/trace_reader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace fs = std::filesystem;

namespace ttrace::scoreboard {
namespace {

class Runner {
 public:
  Runner(const Catalogue& catalogue, const Plan& plan, const RunOptions& options)
      : catalogue_(catalogue),
        plan_(plan),
        options_(options),
        references_(plan.settings.size()),
        digests_(plan.cleans.size()),
        open_(plan.settings.size()) {
    outcomes_.cleans.resize(plan.cleans.size());
    outcomes_.bugs.resize(plan.bugs.size());
    for (std::size_t i = 0; i < plan.cleans.size(); ++i) {
      ++open_[plan.cleans[i].setting];
    }
    for (const BugCase& bug : plan.bugs) {
      ++open_[plan.cleans[bug.clean].setting];
    }
  }

  Outcomes run() {
    const auto start = std::chrono::steady_clock::now();
    testing::run_tasks(tasks(), options_.jobs);
    outcomes_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(outcomes_);
  }

 private:
  // Setting by setting, so that a reference can go soon. The first clean run of a setting makes its
  // reference; the others wait for it, and bugs for the clean run in their layout.
  [[nodiscard]] std::vector<testing::Task> tasks() {
    std::vector<testing::Task> tasks;
    std::map<std::size_t, std::size_t> first;  // task of the first clean run, by setting
    std::vector<std::vector<std::size_t>> bugs(plan_.cleans.size());
    for (std::size_t i = 0; i < plan_.bugs.size(); ++i) {
      bugs[plan_.bugs[i].clean].push_back(i);
    }
    for (std::size_t clean = 0; clean < plan_.cleans.size(); ++clean) {
      const std::size_t task = tasks.size();
      const auto [made, is_first] = first.emplace(plan_.cleans[clean].setting, task);
      tasks.push_back({[this, clean, is_first = is_first] { run_clean(clean, is_first); },
                       is_first ? std::nullopt : std::optional(made->second)});
      for (const std::size_t bug : bugs[clean]) {
        tasks.push_back({[this, bug] { run_bug(bug); }, task});
      }
    }
    return tasks;
  }

  void announce(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (options_.progress) {
      options_.progress(started_, plan_.cleans.size() + plan_.bugs.size(), what);
    }
    ++started_;
  }

  [[nodiscard]] std::string folder_of(std::size_t setting) const {
    return options_.work + "/" + std::to_string(setting);
  }

  [[nodiscard]] testing::CheckRequest request_for(std::size_t clean,
                                                  const std::string& name,
                                                  const std::string& more) {
    const CleanCase& run = plan_.cleans[clean];
    const Setting& setting = plan_.settings[run.setting];
    const std::string folder = folder_of(run.setting);
    const testing::TrainingRun training{.config = folder + "/config.yaml",
                                        .precision = setting.precision,
                                        .seed = setting.seed,
                                        .steps = setting.steps};
    if (references_[run.setting].empty()) {
      fs::create_directories(folder);
      testing::write_derived_config(options_.base, setting.config, training.config);
    }
    const std::string command = testing::reference_command(options_.bin, training);
    const bool stored = !references_[run.setting].empty();
    return {.program = options_.bin + "/ttrace",
            .reference = stored ? references_[run.setting] : command,
            .rerun = stored ? command : "",
            .candidate =
                testing::candidate_command(options_.bin, options_.run_ranks, training, run.layout) +
                more,
            .folder = folder + "/" + name,
            .steps = setting.steps,
            .timeout_s = options_.timeout_s};
  }

  void run_clean(std::size_t clean, bool makes_reference) {
    const CleanCase& run = plan_.cleans[clean];
    announce("clean " + describe(run.layout, plan_.settings[run.setting]));
    CleanOutcome& outcome = outcomes_.cleans[clean];
    if (!makes_reference && references_[run.setting].empty()) {
      outcome.problem = "its reference failed";
      done_with("", run.setting);
      return;
    }
    const auto request = request_for(clean, "clean-" + std::to_string(clean), "");
    const testing::CheckResult result = testing::run_check(request);
    const testing::CheckResult without_forced = judged_without_forced(request, result);
    outcome.seconds = result.seconds;
    outcome.problem = result.problem.empty() ? without_forced.problem : result.problem;
    outcome.alarm = result.diverged;
    outcome.first_id = result.first_id;
    outcome.alarm_without_forced = without_forced.diverged;
    outcome.first_id_without_forced = without_forced.first_id;
    outcome.diagnoses = result.diagnoses;
    // A reference stands even where the candidate failed: the next check makes the noise it lacks.
    if (makes_reference && fs::exists(request.folder + "/logs/candidate.log")) {
      references_[run.setting] = request.folder + "/reference";
    }
    if (result.problem.empty()) {
      const auto [r, c] = open(request.folder);
      digests_[clean] = testing::digests_of(c);
      outcome.rules = testing::apply_rules(r, c);
    }
    done_with(request.folder + "/candidate", run.setting);
  }

  void run_bug(std::size_t index) {
    const BugCase& run = plan_.bugs[index];
    const std::size_t setting = plan_.cleans[run.clean].setting;
    const CataloguedBug& bug = catalogue_.bugs[run.bug];
    announce(bug.name + " " + plan_.settings[setting].precision);
    BugOutcome& outcome = outcomes_.bugs[index];
    if (references_[setting].empty() || !digests_[run.clean]) {
      outcome.problem = "no clean run to compare with: " + outcomes_.cleans[run.clean].problem;
      done_with("", setting);
      return;
    }
    const auto request =
        request_for(run.clean, bug.name + "-" + std::to_string(run.clean), " --bug " + bug.name);
    const testing::CheckResult result = testing::run_check(request);
    outcome = outcome_of(
        bug, outcomes_.cleans[run.clean], result, judged_without_forced(request, result));
    if (outcome.problem.empty()) {
      const auto [r, c] = open(request.folder);
      outcome.triggered = testing::digests_of(c) != *digests_[run.clean];
      outcome.rules = testing::apply_rules(r, c);
    }
    done_with(request.folder, setting);
  }

  // Returns nothing if the check itself has no verdict.
  static testing::CheckResult judged_without_forced(const testing::CheckRequest& request,
                                                    const testing::CheckResult& result) {
    return result.problem.empty() ? testing::judge_without_forced(request) : testing::CheckResult{};
  }

  // HDF5 bears one thread at a time; what is read afterwards lies in memory.
  [[nodiscard]] std::pair<Trace, Trace> open(const std::string& folder) {
    const std::lock_guard lock(mutex_);
    Trace reference = Trace::open(folder + "/reference");
    return {std::move(reference), Trace::open(folder + "/candidate")};
  }

  // Removes what a judged run left, and the whole setting after its last run.
  void done_with(const std::string& folder, std::size_t setting) {
    const bool last = --open_[setting] == 0;
    if (!options_.keep) {
      std::error_code ignored;
      fs::remove_all(last ? folder_of(setting) : folder, ignored);
    }
  }

  const Catalogue& catalogue_;
  const Plan& plan_;
  const RunOptions& options_;
  std::vector<std::string> references_;  // folders; written by the setting's first run
  std::vector<std::optional<testing::Digests>> digests_;  // of clean candidates
  std::vector<std::atomic<std::size_t>> open_;  // runs of a setting that are not judged yet
  std::mutex mutex_;                            // guards HDF5, started_ and the callback
  std::size_t started_ = 0;
  Outcomes outcomes_;
};

}  // namespace

Outcomes run_plan(const Catalogue& catalogue, const Plan& plan, const RunOptions& options) {
  return Runner(catalogue, plan, options).run();
}

}  // namespace ttrace::scoreboard
