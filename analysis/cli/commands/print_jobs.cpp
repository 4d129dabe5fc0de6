#include "analysis/cli/commands/print_jobs.h"

#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/job_script.h"
#include "analysis/cli/commands/pass_plan.h"
#include "analysis/cli/run/process.h"
#include "analysis/cli/run/run_directory.h"
#include "trace/base/precision.h"
#include "trace/file/noise_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

using Texts = std::vector<std::string>;
using Lines = std::vector<std::string>;

// Arguments of check that `ttrace diff` understands as well and that say how to judge, as words of
// a shell. Its other arguments are those of passes.
std::string judging_arguments(const po::variables_map& values) {
  static const std::set<std::string> kOther{"steps", "rename", "help"};
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& value) {
    text += fmt::format(" --{} {}", name, shell_word(value));
  };
  const Manual diff = diff_manual();
  for (const auto& option : diff.options.options()) {
    const std::string& name = option->long_name();
    if (kOther.contains(name) || values.count(name) == 0 || values[name].defaulted()) {
      continue;
    }
    const boost::any& value = values[name].value();
    if (const auto* const list = boost::any_cast<std::vector<std::string>>(&value)) {
      for (const std::string& element : *list) {
        add(name, element);
      }
    } else if (const auto* const number = boost::any_cast<int>(&value)) {
      add(name, std::to_string(*number));
    } else if (option->semantic()->max_tokens() == 0) {
      text += " --" + name;
    } else {
      add(name, values[name].as<std::string>());
    }
  }
  return text;
}

class Plan {
 public:
  Plan(const CheckOptions& options, const po::variables_map& values)
      : options_(options),
        run_(RunDirectory::planned(options.output)),
        side_(reference_side(options_, run_)),
        judging_(judging_arguments(values)) {}

  JobScript script(const po::variables_map& values) &&;

 private:
  void add(std::string name, Texts after, Lines lines) {
    jobs_.push_back({std::move(name), std::move(after), std::move(lines)});
  }
  // A job whose failure costs sharpness only. `lines` end with the pass; `then` follows it.
  void add_optional(const std::string& name, Texts after, Lines lines, const Lines& then = {}) {
    lines.back() += fmt::format(" || {{ left_out {}; exit 0; }}", name);
    lines.insert(lines.end(), then.begin(), then.end());
    add(name, std::move(after), std::move(lines));
  }
  [[nodiscard]] std::string rename_line(const std::string& from,
                                        const std::string& to,
                                        const std::string& more = "") const {
    return fmt::format("\"$ttrace\" rename {} --map {} -o {}{} >&2",
                       shell_word(from),
                       shell_word(map_),
                       shell_word(to),
                       more);
  }
  // Renames a pass of the reference's program, where names differ.
  [[nodiscard]] Lines renamed(const std::string& from, const std::string& to) const {
    return options_.rename ? Lines{rename_line(from, to)} : Lines{};
  }

  void add_reference();
  void add_repetitions(const CheckOptions& options,
                       const ReferenceRun& run,
                       const Lines& condition);
  void add_candidate();
  void add_rerouted();
  void add_forced(const std::string& name, const std::string& folder, const std::string& precision);
  void add_golden();
  void add_diff();
  [[nodiscard]] Texts all() const;

  const CheckOptions& options_;
  RunDirectory run_;
  std::string side_;     // the folder of the reference's program
  std::string judging_;  // arguments of `ttrace diff`
  std::string map_;      // --rename
  std::vector<Job> jobs_;
};

Texts Plan::all() const {
  Texts names;
  for (const Job& job : jobs_) {
    names.push_back(job.name);
  }
  return names;
}

void Plan::add_reference() {
  const ReferenceRun reference{side_ + "/reference"};
  if (options_.stored) {
    add("reference",
        {},
        {fmt::format("mkdir -p {}", shell_word(side_)),
         fmt::format("ln -sfn {} {}",
                     shell_word(fs::canonical(options_.reference).string()),
                     shell_word(reference.folder))});
  } else {
    add("reference", {}, lines_of(reference_pass(options_, run_, reference), "reference"));
    add_repetitions(options_, reference, {});
  }
  if (options_.rename) {
    add("rename-reference", all(), {rename_line(reference.folder, run_.reference())});
  }
}

// Self-check and noise passes. `condition` are lines that end the job where it has nothing to do.
void Plan::add_repetitions(const CheckOptions& options,
                           const ReferenceRun& run,
                           const Lines& condition) {
  const auto add_pass = [&](const std::string& name, const Pass& pass, Lines lines) {
    std::ranges::move(lines_of(pass, name), std::back_inserter(lines));
    condition.empty() ? add(name, {run.label("reference")}, std::move(lines))
                      : add_optional(name, {run.label("reference")}, std::move(lines));
  };
  if (options.self_check != SelfCheck::kNever) {
    Lines lines = condition;
    if (options.self_check == SelfCheck::kWhereNeeded) {
      lines.push_back(fmt::format("needs_self_check {} || exit 0", shell_word(run.folder)));
    }
    add_pass(run.label("self-check"), self_check_pass(options, run_, run), std::move(lines));
  }
  for (int seed = 1; seed <= options.noise; ++seed) {
    add_pass(run.label("noise-" + std::to_string(seed)),
             noise_pass(options, run_, run, seed),
             condition);
  }
}

void Plan::add_candidate() {
  add("candidate",
      {options_.rename ? "rename-reference" : "reference"},
      lines_of(candidate_pass(options_, run_), "candidate"));
  if (options_.rename && !options_.rerun.empty()) {
    add("rename-candidate",
        {"candidate"},
        {rename_line(run_.candidate(), side_ + "/candidate", " --to reference")});
  }
}

// The reference and its noise passes once more, where the candidate chose other experts.
void Plan::add_rerouted() {
  const ReferenceRun rerouted{rerouted_reference(side_), side_ + "/candidate"};
  CheckOptions again = options_;
  if (options_.stored) {
    again.noise = static_cast<int>(noise_files(options_.reference).size());
  }
  Lines lines{"flips || exit 0"};
  const std::string name = rerouted.label("reference");
  std::ranges::move(lines_of(reference_pass(again, run_, rerouted), name),
                    std::back_inserter(lines));
  add_optional(name, {"candidate"}, std::move(lines));
  add_repetitions(
      again,
      rerouted,
      {fmt::format("[ -e {} ] || exit 0", shell_word(rerouted.folder + "/manifest.json"))});
}

// `precision` is a word of the shell: the reference's manifest decides.
void Plan::add_forced(const std::string& name,
                      const std::string& folder,
                      const std::string& precision) {
  Lines lines{fmt::format("native=$(precision {})", shell_word(run_.reference())),
              "case $native in"};
  for (const std::string& native : precisions_on_request()) {
    const std::string_view wider = precision_of(native).wider;
    if (!wider.empty()) {
      lines.push_back(fmt::format("  {}) wide={} ;;", native, wider));
    }
  }
  lines.insert(lines.end(), {"  *) exit 0 ;; # nothing is wider", "esac"});
  Pass pass = forced_pass(options_, run_, "", name, folder);
  pass.variables.erase("TTRACE_PRECISION");
  lines.push_back("export TTRACE_PRECISION=" + precision);
  std::ranges::move(lines_of(pass, name), std::back_inserter(lines));
  add_optional(name,
               {options_.rename ? "rename-candidate" : "candidate"},
               std::move(lines),
               renamed(folder, run_.path() + "/" + name));
}

void Plan::add_golden() {
  const std::string folder = golden_pass(side_);
  Lines lines{
      fmt::format("[ \"$(precision {})\" != f64 ] || exit 0", shell_word(run_.reference()))};
  Lines run = lines_of(golden_pass_of(options_, run_, false), "golden");
  const Pass rerouted = golden_pass_of(options_, run_, true);
  run.insert(run.end() - 1,
             fmt::format("[ ! -e {} ] || export TTRACE_CANDIDATE={}",
                         shell_word(run_.rerouted() + "/manifest.json"),
                         shell_word(rerouted.variables.at("TTRACE_CANDIDATE"))));
  std::ranges::move(run, std::back_inserter(lines));
  Texts after{options_.rename ? "rename-candidate" : "rerouted-reference"};
  const Lines then = renamed(folder, golden_pass(run_.path()));
  if (options_.dyadic) {  // nothing can be judged without it
    lines.insert(lines.end(), then.begin(), then.end());
    add("golden", std::move(after), std::move(lines));
  } else {
    add_optional("golden", std::move(after), std::move(lines), then);
  }
}

void Plan::add_diff() {
  add("diff",
      all(),
      {fmt::format("\"$ttrace\" diff {}{} --format text={} --format json={}",
                   shell_word(run_.path()),
                   judging_,
                   shell_word(run_.path() + "/report.txt"),
                   shell_word(run_.path() + "/report.json"))});
}

JobScript Plan::script(const po::variables_map& values) && {
  if (options_.rename) {
    map_ = fs::absolute(values["rename"].as<std::string>()).string();
  }
  add_reference();
  add_candidate();
  if (!options_.rerun.empty()) {
    if (!options_.rename) {
      add_rerouted();
    }
    if (options_.forced) {
      add_forced("forced-wide", forced_wide(side_), "\"$wide\"");
      add_forced("forced-native", forced_native(side_), "\"$native\"");
    }
    if (options_.golden) {
      add_golden();
    }
  }
  add_diff();
  return {run_.path(), fs::read_symlink("/proc/self/exe").string(), std::move(jobs_)};
}

}  // namespace

void print_jobs(std::ostream& out, const CheckOptions& options, const po::variables_map& values) {
  print_script(out, Plan(options, values).script(values));
}

}  // namespace ttrace::cli
