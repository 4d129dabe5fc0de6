#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/gate_checks.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/helper_program.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/gate/fingerprint.h"
#include "analysis/gate/gate_summary.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct GateArguments {
  std::string file;
  std::string output = {};
  std::set<std::string> only = {};  // layouts; empty: all
  std::size_t at_a_time = 0;        // 0: not asked
  bool renew = false;
  std::vector<std::string> required = {};  // by all layouts, see --require of check
};

po::options_description gate_options() {
  po::options_description named("Options");
  named.add_options()(
      "output,o",
      text_option("FOLDER"),
      "folder for everything that the gate writes; default: runs/N with the next free number")(
      "only",
      po::value<std::vector<std::string>>()->value_name("LAYOUT"),
      "check only this layout; repeatable")(
      "renew", "make the stored references again; do this on a commit that you trust")(
      "jobs",
      po::value<int>()->value_name("N"),
      "number of layouts that may be checked at the same time, if the memory holds them; the "
      "default is half of the cores, and 1 where the reference ran on an accelerator, whose memory "
      "is not measured");
  add_require_option(named);
  add_help_option(named);
  return named;
}

GateArguments read_arguments(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(
      words.size() == 1,
      UsageError,
      fmt::format("gate takes one file, but {} were given: ttrace gate FILE", words.size()));
  GateArguments arguments{.file = words.front(),
                          .output = text_of(values, "output").value_or(""),
                          .renew = values.count("renew") != 0,
                          .required = words_to_require(values)};
  if (values.count("only") != 0) {
    const auto& names = values["only"].as<std::vector<std::string>>();
    arguments.only = {names.begin(), names.end()};
  }
  if (values.count("jobs") != 0) {
    arguments.at_a_time = static_cast<std::size_t>(whole_number(values, "jobs", 1));
  }
  return arguments;
}

std::chrono::year_month_day today() {
  return std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
}

void require_current(const GateFile& file) {
  const std::vector<std::string> sentences = expired(file, today());
  TTRACE_CHECK(sentences.empty(), UsageError, fmt::format("{}", fmt::join(sentences, "\n")));
}

void require_known(const GateFile& file, const std::set<std::string>& only) {
  std::vector<std::string> known;
  for (const GateLayout& layout : file.layouts) {
    known.push_back(layout.name);
  }
  for (const std::string& name : only) {
    TTRACE_CHECK(
        std::ranges::find(known, name) != known.end(),
        UsageError,
        fmt::format("--only names '{}', which is no layout of the file; the nearest is '{}'",
                    name,
                    nearest(name, known)));
  }
}

// Of the repository in which the gate runs; empty outside of one.
std::string current_commit() {
  const TemporaryFolder folder("gate");
  const HelperOutcome git = run_helper("git rev-parse HEAD 2>/dev/null", folder.path());
  return git.well ? git.output.substr(0, git.output.find('\n')) : "";
}

class Gate {
 public:
  Gate(GateArguments arguments, GateFile file)
      : arguments_(std::move(arguments)),
        file_(std::move(file)),
        run_(RunDirectory::create(arguments_.output)) {
    result_.file = arguments_.file;
    for (const GateLayout& layout : file_.layouts) {
      if (is_selected(layout.name)) {
        needed_.insert(layout.reference);
      }
    }
  }

  int run() {
    for (const char* folder : {"/junit", "/sarif"}) {
      fs::create_directories(run_.path() + folder);
    }
    refuse_stale();
    make_references();
    check_layouts();
    finish();
    return result_.exit_code();
  }

 private:
  bool is_selected(const std::string& layout) const {
    return arguments_.only.empty() || arguments_.only.contains(layout);
  }

  // References whose program, files or options changed; their layouts are not run.
  void refuse_stale() {
    for (const GateReference& reference : file_.references) {
      if (!needed_.contains(reference.name) || arguments_.renew || !is_stored(file_, reference)) {
        continue;
      }
      const auto sentences =
          differences(read_fingerprint(folder_of(file_, reference) + "/made_from.json"),
                      fingerprint_of(reference, commit_));
      if (!sentences.empty()) {
        declare_stale(reference.name, sentences);
      }
    }
  }

  void declare_stale(const std::string& name, const std::vector<std::string>& sentences) {
    if (!stale_.insert(name).second) {
      return;
    }
    const std::string text = fmt::format(
        "the stored reference {} is stale: {}; make it again on a commit that you trust: ttrace "
        "gate {} --renew",
        name,
        fmt::join(sentences, "; "),
        arguments_.file);
    result_.problems.push_back(text);
    progress_.clear();
    std::cout << text << std::endl;
  }

  void make_references() {
    std::vector<Task> tasks;
    std::vector<std::pair<const GateReference*, Fingerprint>> made;
    for (const GateReference& reference : file_.references) {
      const bool missing = arguments_.renew || !is_stored(file_, reference);
      if (missing && needed_.contains(reference.name)) {
        // Of the files that the program is about to read.
        made.emplace_back(&reference, fingerprint_of(reference, commit_));
        tasks.push_back(making(file_, reference, run_.path()));
      }
    }
    run_side_by_side(
        tasks,
        {.at_a_time = 1,
         .wanted = nullptr,
         .ended =
             [&](std::size_t i, const TaskEnd& end) {
               accept(*made[i].first, made[i].second, tasks[i], end);
             },
         .tick = [this](const std::string& names, double seconds) { show(names, seconds); }});
  }

  // A reference that does not agree with itself must not judge others.
  void accept(const GateReference& reference,
              const Fingerprint& fingerprint,
              const Task& task,
              const TaskEnd& end) {
    progress_.clear();
    TTRACE_CHECK(
        end.exit_code != 1,
        UsageError,
        fmt::format(
            "the reference {} does not agree with itself; see {}", reference.name, task.output));
    TTRACE_CHECK(
        end.exit_code == 0,
        UsageError,
        fmt::format(
            "the reference {} could not be made: {}", reference.name, error_in(task.errors)));
    keep_reference(file_, reference, fingerprint);
    std::cout << fmt::format("reference {}: made in {:.1f} s, {}\n",
                             reference.name,
                             end.seconds,
                             folder_of(file_, reference))
              << std::flush;
  }

  std::size_t at_a_time() const {
    if (arguments_.at_a_time > 0) {
      return arguments_.at_a_time;
    }
    // A check runs a reference of one process beside a candidate's ranks.
    std::size_t fewest = default_at_a_time({}, 2);
    for (const GateReference& reference : file_.references) {
      if (is_stored(file_, reference)) {
        const Manifest manifest = read_manifest(folder_of(file_, reference) + "/reference");
        fewest = std::min(fewest, default_at_a_time(manifest, 2));
      }
    }
    return fewest;
  }

  void check_layouts() {
    memory_ = read_memory(file_);
    std::vector<Task> tasks;
    std::vector<std::size_t> layouts;
    for (std::size_t i = 0; i < file_.layouts.size(); ++i) {
      const GateLayout& layout = file_.layouts[i];
      all_.push_back(
          {.name = layout.name, .command = layout.command, .reference = layout.reference});
      if (is_selected(layout.name)) {
        tasks.push_back(checking(file_, layout, run_.path()));
        tasks.back().memory = memory_[layout.name];
        layouts.push_back(i);
      }
    }
    run_side_by_side(
        tasks,
        {.at_a_time = at_a_time(),
         .wanted =
             [&](std::size_t task) { return !stale_.contains(all_[layouts[task]].reference); },
         .ended = [&](std::size_t task, const TaskEnd& end) { note(layouts[task], end); },
         .tick = [this](const std::string& names, double seconds) { show(names, seconds); }});
    write_memory(file_, memory_);
  }

  void note(std::size_t layout, const TaskEnd& end) {
    LayoutResult& result = all_[layout];
    result = result_of(file_, file_.layouts[layout], run_.path(), end);
    memory_[result.name] = std::max(memory_[result.name], end.memory);
    progress_.clear();
    if (result.outcome == Outcome::kStale) {
      declare_stale(result.reference, result.problems);
    }
    write_layout(std::cout, result, run_.path());
    std::cout << std::flush;
  }

  void finish() {
    for (LayoutResult& result : all_) {
      if (result.outcome == Outcome::kNotRun && stale_.contains(result.reference)) {
        result.outcome = Outcome::kStale;
      }
    }
    for (const std::string& sentence : unneeded(file_, all_)) {
      result_.problems.push_back(sentence);
      std::cout << sentence << '\n';
    }
    std::ranges::copy_if(all_,
                         std::back_inserter(result_.layouts),
                         [this](const LayoutResult& result) { return is_selected(result.name); });
    for (const LayoutResult& result : result_.layouts) {
      if (!was_compared(result)) {
        std::ostringstream text;
        write_gate_junit(text, result);
        run_.write(fmt::format("junit/{}.xml", result.name), text.str());
      }
    }
    write("summary.md", write_gate_markdown);
    write("summary.html", write_gate_html);
    write("summary.json", write_gate_json);
    add_to_job_summary();
    std::cout << fmt::format("\n{}; summary: {}/summary.html\n", result_.sentence(), run_.path());
  }

  void write(const std::string& name, void (*writer)(std::ostream&, const GateResult&)) const {
    std::ostringstream text;
    writer(text, result_);
    run_.write(name, text.str());
  }

  // The file that GitHub's runners name for what they show on the page of a job.
  void add_to_job_summary() const {
    if (const char* const file = std::getenv("GITHUB_STEP_SUMMARY");
        file != nullptr && *file != '\0') {
      std::ofstream out(file, std::ios::app);
      write_gate_markdown(out, result_);
      TTRACE_CHECK(out.flush(),
                   FormatError,
                   "cannot write the summary to ",
                   file,
                   ", which GITHUB_STEP_SUMMARY names; check the path");
    }
  }

  void show(const std::string& names, double seconds) {
    progress_.show_rarely(fmt::format("checking {} ({:.0f} s)", names, seconds));
  }

  GateArguments arguments_;
  GateFile file_;
  RunDirectory run_;
  std::string commit_ = current_commit();
  ProgressLine progress_;
  GateResult result_;
  std::vector<LayoutResult> all_;  // also of layouts that are not selected
  std::set<std::string> needed_;   // references
  std::set<std::string> stale_;    // the same
  std::map<std::string, std::uint64_t> memory_;
};

int run_gate(const po::variables_map& values) {
  const GateArguments arguments = read_arguments(values);
  GateFile file = load_gate_file(arguments.file);
  for (GateLayout& layout : file.layouts) {
    std::vector<std::string>& required = layout.options["require"];
    required.insert(required.end(), arguments.required.begin(), arguments.required.end());
    if (required.empty()) {
      layout.options.erase("require");  // an option without values is a switch
    }
  }
  require_valid_options(file);
  require_current(file);
  require_known(file, arguments.only);
  const NoteInterrupts noted;
  return Gate(arguments, file).run();
}

}  // namespace

Manual gate_manual() {
  return {
      .name = "gate",
      .summary = "check a list of layouts against stored references, for CI",
      .synopses = {"FILE [options]"},
      .description =
          {"Runs `ttrace check` for every layout that FILE lists, against a stored reference, and "
           "fails if one diverges. A reference that is not stored yet is made first, by a check of "
           "the trusted program against itself. Commands run in the current folder, and paths in "
           "FILE are relative to it.",
           "A stored reference is refused as stale if its command, its options, a file that it was "
           "made from, the commit (where FILE lists `commit`) or the version of a library changed; "
           "what differs is printed first.",
           "FOLDER gets summary.html, summary.md and summary.json, and for every layout NAME the "
           "reports NAME.txt, NAME.html, NAME.md, junit/NAME.xml and sarif/NAME.sarif with the "
           "traces and logs in NAME/. The summary is also added to the file that "
           "GITHUB_STEP_SUMMARY names. docs/gate.md describes FILE."},
      .options = gate_options(),
      .run = run_gate,
      .exit_codes = {{"0", "all layouts are within bound"},
                     {"1", "a layout diverges"},
                     {"2",
                      "no layout diverges, but one could not be compared or judged, something "
                      "required was not seen, a reference is stale, a "
                      "permission has expired or "
                      "is not needed, or an option matches nothing"},
                     {"128+n", "signal n ended the gate (Ctrl-C: 130)"}},
      .examples = {
          {"ttrace gate gate.yaml -o out", "check all layouts"},
          {"ttrace gate gate.yaml --only tp2-dp2", "check one of them"},
          {"ttrace gate gate.yaml --require updates,start", "fail where these were not compared"},
          {"ttrace gate gate.yaml --renew", "make the references again, then check all layouts"}}};
}

}  // namespace ttrace::cli
