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
  // Self-check and noise passes of the reference that judges, after the job `after`.
  void add_repetitions(const std::string& after);
  [[nodiscard]] Lines repetition(const std::string& name, const Pass& pass, const Lines& unless);
  void add_candidate();
  void add_if_rerouted(const std::string& variable, const Pass& rerouted, Lines& run) const;
  void add_rerouted();
  [[nodiscard]] ReferenceRun following_reference() const {
    return {rerouted_reference(side_), side_ + "/candidate"};
  }
  // A file that says that this reference is complete.
  [[nodiscard]] std::string followed_mark() const { return run_.path() + "/logs/rerouted.done"; }
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
  }
  if (options_.rename) {  // the noise must be there when names change
    if (!options_.stored) {
      add_repetitions("reference");
    }
    add("rename-reference", all(), {rename_line(reference.folder, run_.reference())});
  }
}

// The lines of a pass of the reference that judges: the one that followed the candidate's choices,
// if it is there. `unless` are lines that end the job where $judge needs no such pass.
Lines Plan::repetition(const std::string& name, const Pass& pass, const Lines& unless) {
  Lines lines{fmt::format("judge={}", shell_word(pass.variables.at("TTRACE_REFERENCE")))};
  if (!options_.rename) {
    const ReferenceRun following = following_reference();
    const Pass other = reference_pass(options_, run_, following);
    lines.push_back(fmt::format("[ ! -e {} ] || {{ judge={}; export TTRACE_CANDIDATE={}; }}",
                                shell_word(followed_mark()),
                                shell_word(other.variables.at("TTRACE_DIR")),
                                shell_word(other.variables.at("TTRACE_CANDIDATE"))));
  }
  lines.insert(lines.end(), unless.begin(), unless.end());
  Pass own = pass;
  own.variables["TTRACE_REFERENCE"] = "";
  for (std::string& line : lines_of(own, name)) {
    const bool names = line.starts_with("export TTRACE_REFERENCE=");
    lines.push_back(names ? "export TTRACE_REFERENCE=\"$judge\"" : std::move(line));
  }
  return lines;
}

void Plan::add_repetitions(const std::string& after) {
  const ReferenceRun reference{side_ + "/reference"};
  const auto add_pass = [&](const std::string& name, const Pass& pass, const Lines& unless) {
    Lines lines = repetition(name, pass, unless);
    options_.stored ? add_optional(name, {after}, std::move(lines))
                    : add(name, {after}, std::move(lines));
  };
  if (options_.self_check != SelfCheck::kNever) {
    Lines unless{"[ ! -e \"$judge/noise/self.h5\" ] || exit 0"};
    if (options_.stored && std::ssize(noise_files(options_.reference)) >= options_.noise) {
      unless.push_back(fmt::format("[ -e {} ] || exit 0", shell_word(followed_mark())));
    }
    if (options_.self_check == SelfCheck::kWhereNeeded) {
      unless.emplace_back("needs_self_check \"$judge\" || exit 0");
    }
    add_pass("self-check", self_check_pass(options_, run_, reference), unless);
  }
  for (int seed = 1; seed <= options_.noise; ++seed) {
    const std::string table = fs::path(noise_file("", seed)).filename().string();
    add_pass("noise-" + std::to_string(seed),
             noise_pass(options_, run_, reference, seed),
             {fmt::format("[ ! -e \"$judge/noise/{}\" ] || exit 0", table)});
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

// The reference once more, where the candidate chose other experts or drew other random numbers.
void Plan::add_rerouted() {
  const ReferenceRun following = following_reference();
  const std::string name = following.label("reference");
  Lines lines{"flips || exit 0"};
  std::ranges::move(lines_of(reference_pass(options_, run_, following), name),
                    std::back_inserter(lines));
  add_optional(name,
               {"candidate"},
               std::move(lines),
               {fmt::format("touch {}", shell_word(followed_mark()))});
}

// Before the command of a pass: the variable as in `rerouted`, where the reference that judges is.
void Plan::add_if_rerouted(const std::string& variable, const Pass& rerouted, Lines& run) const {
  run.insert(run.end() - 1,
             fmt::format("[ ! -e {} ] || export {}={}",
                         shell_word(followed_mark()),
                         variable,
                         shell_word(rerouted.variables.at(variable))));
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
  Pass pass = forced_pass(options_, run_, "", name, folder, false);
  pass.variables.erase("TTRACE_PRECISION");
  lines.push_back("export TTRACE_PRECISION=" + precision);
  Lines run = lines_of(pass, name);
  add_if_rerouted("TTRACE_REFERENCE", forced_pass(options_, run_, "", name, folder, true), run);
  run.insert(run.end() - 1,
             "\"$ttrace\" infer \"$TTRACE_REFERENCE\" \"$TTRACE_CANDIDATE\" --settled "
             "\"$TTRACE_SETTLED\"");
  std::ranges::move(run, std::back_inserter(lines));
  add_optional(name,
               {options_.rename ? "rename-candidate" : "rerouted-reference"},
               std::move(lines),
               renamed(folder, run_.path() + "/" + name));
}

void Plan::add_golden() {
  const std::string folder = golden_pass(side_);
  Lines lines{
      fmt::format("[ \"$(precision {})\" != f64 ] || exit 0", shell_word(run_.reference()))};
  Lines run = lines_of(golden_pass_of(options_, run_, false), "golden");
  add_if_rerouted("TTRACE_CANDIDATE", golden_pass_of(options_, run_, true), run);
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
      add_repetitions("rerouted-reference");
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
