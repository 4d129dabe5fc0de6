#include "analysis/checks/law_check.h"
#include "analysis/cli/commands/auto_attach.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/laws_text.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/passes.h"
#include "analysis/cli/run/process.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/findings/wording.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sys/wait.h>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr std::chrono::milliseconds kPollSteps{200};
constexpr std::int64_t kMostWatched = 10000;

// The words behind `--`, or one word that is a command of a shell.
std::string command_of(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(!words.empty(),
               UsageError,
               "watch needs the command of the training program: ttrace watch -- COMMAND");
  if (words.size() == 1) {
    return words.front();
  }
  std::string command;
  for (const std::string& word : words) {
    command += (command.empty() ? "" : " ") + shell_word(word);
  }
  return command;
}

struct Watched {
  std::int64_t steps = 0;
  std::int64_t broken = 0;  // steps
  std::size_t laws = 0;     // of the latest step
};

class Watch {
 public:
  Watch(const po::variables_map& values, const RunDirectory& run)
      : trace_(run.path() + "/trace"),
        lines_(run.path() + "/watch.jsonl"),
        keeps_(values.count("keep") != 0),
        reference_(obeyed_laws(values)) {
    TTRACE_CHECK(lines_.good(), FormatError, "cannot write ", run.path(), "/watch.jsonl");
  }

  [[nodiscard]] const std::string& trace() const { return trace_; }
  [[nodiscard]] const Watched& watched() const { return watched_; }

  // Judges the steps that all ranks have finished since. Returns whether a law is broken in one.
  bool look() {
    if (!manifest_ && fs::exists(trace_ + "/manifest.json")) {
      manifest_ = read_manifest(trace_);
      next_ = manifest_->steps.begin();
    }
    bool broken = false;
    while (manifest_ && next_ != manifest_->steps.end() &&
           is_complete(trace_, *manifest_, *next_)) {
      broken = judge(*next_++) || broken;
    }
    return broken;
  }

  // Leaves a trace of the steps that were kept, for other commands.
  void finish() {
    if (manifest_) {
      manifest_->steps = kept_;
      write_manifest(trace_, *manifest_);
    }
  }

 private:
  bool judge(std::int64_t step) {
    const Trace trace = Trace::open_step(trace_, step);
    const LawsInForce in_force = reference_ ? laws_of(trace, in_step(*reference_, step))
                                            : LawsInForce{.laws = laws_of(trace)};
    const std::vector<Law>& laws = in_force.laws;
    const LawCounts counts = count(laws, in_force.left_out);
    nlohmann::ordered_json line = {{"step", step}};
    line.update(json_of(trace, laws, counts));
    lines_ << line.dump() << '\n' << std::flush;
    ++watched_.steps;
    watched_.laws = laws.size();
    if (!counts.broken.empty()) {
      ++watched_.broken;
      std::cerr << fmt::format("[ttrace] step {}\n{}", step, text_of(trace, laws, counts));
    }
    if (keeps_ || !counts.broken.empty()) {
      kept_.push_back(step);
    } else {
      fs::remove_all(fs::path(step_file(trace_, step, 0)).parent_path());
    }
    return !counts.broken.empty();
  }

  // A reference's laws, as if its step were this one.
  static std::vector<Law> in_step(std::vector<Law> laws, std::int64_t step) {
    for (Law& law : laws) {
      law.result.step = step;
    }
    return laws;
  }

  std::string trace_;
  std::ofstream lines_;
  bool keeps_;
  std::optional<std::vector<Law>> reference_;
  std::optional<Manifest> manifest_;
  std::vector<std::int64_t>::const_iterator next_;
  std::vector<std::int64_t> kept_;
  Watched watched_;
};

Variables variables_of(const po::variables_map& values, const Watch& watch) {
  const std::int64_t every = whole_number(values, "every", 1);
  const std::int64_t first = whole_number(values, "first", 0);
  return {{"TTRACE_PASS", "candidate"},
          {"TTRACE_START", "own"},
          {"TTRACE_DIR", fs::absolute(watch.trace()).lexically_normal().string()},
          {"TTRACE_STEPS", fmt::format("{}:{}:{}", first, first + kMostWatched * every, every)}};
}

// Returns the program's wait status; nothing where it was ended because a law is broken.
std::optional<int> follow(const po::variables_map& values, Program& program, Watch& watch) {
  const bool stops = values.count("stop") != 0;
  for (;;) {
    const std::optional<int> status = program.exit_status();  // before its last files are looked at
    const bool broken = watch.look();
    if (status) {
      return status;
    }
    if (broken && stops) {
      program.end(std::chrono::seconds(whole_number(values, "grace", 0)));
      return std::nullopt;
    }
    if (const int signal = interrupt_signal(); signal != 0) {
      program.end(std::chrono::seconds(whole_number(values, "grace", 0)));
      watch.finish();
      throw Interrupted{signal};
    }
    wait_or_interrupt(kPollSteps);
  }
}

std::string end_text(const Watched& watched, const RunDirectory& run, bool stopped) {
  const std::string steps = counted(watched.steps, "watched step");
  const std::string result =
      watched.steps == 0    ? "NOT JUDGED  the program ended before a watched step was finished"
      : watched.broken == 0 ? fmt::format("HOLD  all laws hold in {}", steps)
                            : fmt::format("BROKEN  laws are broken in {} of {}{}",
                                          watched.broken,
                                          steps,
                                          stopped ? "; the program was ended" : "");
  return fmt::format("{}\n  each step  {}/watch.jsonl\n", result, run.path());
}

int run_watch(const po::variables_map& values) {
  CheckOptions options;
  options.candidate = command_of(values);
  options.automatic = values.count("auto") != 0;
  const RunDirectory run = RunDirectory::create(text_of(values, "output").value_or(""));
  if (options.automatic) {
    attach_by_itself(options, run.path() + "/auto");
  }
  const NoteInterrupts noted;
  Watch watch(values, run);
  const Variables variables = variables_of(values, watch);
  Program program({.command = options.candidate,
                   .environment = pass_environment(variables, options.candidate),
                   .log = ""});
  const std::optional<int> status = follow(values, program, watch);
  watch.finish();
  std::cout << end_text(watch.watched(), run, !status);
  if (watch.watched().broken > 0) {
    return 1;
  }
  TTRACE_CHECK(!status || (WIFEXITED(*status) && WEXITSTATUS(*status) == 0),
               UsageError,
               "the program ",
               describe_exit(*status));
  return watch.watched().steps == 0 || watch.watched().laws == 0 ? 2 : 0;
}

}  // namespace

Manual watch_manual() {
  po::options_description named("Options");
  named.add_options()(
      "every", po::value<int>()->default_value(100)->value_name("N"), "watch every Nth iteration")(
      "first",
      po::value<int>()->default_value(0)->value_name("N"),
      "the first iteration that is watched")(
      "stop", "end the program as soon as a law is broken; without it, training goes on")(
      "auto", "the program has no line of TTrace; see docs/python.md")(
      "keep", "keep the traces of steps in which all laws hold, too")(
      "grace",
      po::value<int>()->default_value(5)->value_name("S"),
      "seconds that the program has to end when it is told to")(
      "output,o",
      text_option("FOLDER"),
      "folder for what was watched; default: runs/N with the next free number");
  add_obeyed_option(named);
  add_help_option(named);
  return {
      .name = "watch",
      .summary = "run a training program, and judge every Nth step by itself, without a reference",
      .synopses = {"[options] -- COMMAND", "[options] \"COMMAND\""},
      .description =
          {"Runs a program that has TTrace's lines until its own end, traces every Nth iteration, "
           "and "
           "asks the laws of ttrace laws of each: products, sums of gradients, the clipping norm, "
           "and "
           "copies on several ranks that must stay equal. No other program runs, and the program "
           "keeps its own parameters and random numbers.",
           "FOLDER/watch.jsonl gets a line of JSON for every watched step. A step in which a law "
           "is "
           "broken is printed to stderr, and its trace is kept for ttrace laws, show and diff. The "
           "program's own output goes where it would go without TTrace."},
      .options = named,
      .run = run_watch,
      .exit_codes = {{"0", "all laws hold in every watched step"},
                     {"1", "a law is broken"},
                     {"2",
                      "no step was watched, no law could be asked, the program failed, or bad "
                      "usage"},
                     {"128+n", "signal n ended the watch (Ctrl-C: 130)"}},
      .examples = {
          {"ttrace watch --every 100 -- torchrun --nproc-per-node 8 train.py --config c.yaml",
           "watch a job"},
          {"ttrace watch --every 1000 --stop --auto -- python train.py",
           "end a program without TTrace's lines as soon as its numbers contradict each other"}}};
}

}  // namespace ttrace::cli
