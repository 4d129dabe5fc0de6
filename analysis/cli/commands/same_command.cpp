#include "analysis/align/machine.h"
#include "analysis/cli/commands/check_passes.h"
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/pass_plan.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/pass_limits.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/facts.h"
#include "analysis/same.h"

#include <ttrace/error.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <iostream>
#include <optional>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// Returns the folder of the trace that it leaves.
std::string run_once(const po::variables_map& values,
                     const std::string& command,
                     const RunDirectory& run,
                     const std::string& name,
                     Course& course) {
  CheckOptions options;
  options.candidate = command;
  if (const auto steps = text_of(values, "steps")) {
    options.steps = parse_steps(*steps);
  }
  const Pass pass = lone_pass(options, run, name);
  follow(pass, pass_limits_of(values), course);
  return pass.trace;
}

// The two traces: those that are given, or those of the commands that are.
std::vector<std::string> traces_of(const po::variables_map& values) {
  std::vector<std::string> sides = words_of(values);
  TTRACE_CHECK(sides.size() == 2,
               UsageError,
               fmt::format("same needs two traces or commands, but {} given", words_given(sides)));
  std::optional<RunDirectory> run;
  const NoteInterrupts noted;
  Course course;
  const auto is_folder = [](const std::string& word) {
    std::error_code error;
    return std::filesystem::is_directory(word, error);
  };
  for (const std::string& side : sides) {
    course.passes += is_folder(side) ? 0 : 1;
  }
  for (std::size_t i = 0; i < sides.size(); ++i) {
    if (is_folder(sides[i])) {
      require_trace_folder(sides[i]);
      continue;
    }
    if (!run) {
      run = RunDirectory::create(text_of(values, "output").value_or(""));
    }
    sides[i] = run_once(values, sides[i], *run, i == 0 ? "first" : "second", course);
  }
  return sides;
}

nlohmann::ordered_json json_of(const UnequalRecord& record) {
  return {{"id", to_string(record.id)},
          {"rank", record.rank},
          {"how", record.how},
          {"equal_before", record.before}};
}

void write_json(const Sameness& result) {
  nlohmann::ordered_json json;
  json["verdict"] = result.same() ? "same" : "differs";
  json["records"] = result.records;
  json["settings"] = result.settings;
  json["first"] = result.first ? json_of(*result.first) : nlohmann::ordered_json();
  json["unequal"] = nlohmann::ordered_json::array();
  for (const UnequalRecord& record : result.unequal) {
    json["unequal"].push_back(json_of(record));
  }
  std::cout << json.dump(2) << '\n';
}

void write_text(const Sameness& result, const Trace& first, const Trace& second) {
  if (result.same()) {
    std::cout << fmt::format("SAME  {} of {} are equal bit for bit\n",
                             counted(result.records, "record"),
                             counted(first.manifest().world_size, "rank"));
  } else {
    const UnequalRecord& found = *result.first;
    std::cout << fmt::format(
        "DIFFERS  {}, rank {}\n\n  how       {}\n  before    {} of this rank came before it, all "
        "equal\n  why       {}\n  in all    {} of {} differ\n",
        place_text(found.id),
        found.rank,
        found.how,
        counted(found.before, "record"),
        why_unequal(found.id.kind),
        result.unequal.size(),
        counted(result.records, "record"));
  }
  for (const std::string& setting : result.settings) {
    std::cout << "  setting   " << setting << '\n';
  }
  const std::string machine = machine_line(first.manifest());
  std::cout << (machine.empty() ? "" : "  " + machine);
  if (!result.same()) {
    const std::string id = to_string(result.first->id);
    std::cout << fmt::format("  next      ttrace show {} {}\n            ttrace show {} {}\n",
                             first.directory(),
                             id,
                             second.directory(),
                             id);
  }
}

int run_same(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  const std::vector<std::string> folders = traces_of(values);
  const Trace first = Trace::open(folders[0]);
  const Trace second = Trace::open(folders[1]);
  const Sameness result = compare_runs(first, second);
  if (format == ReportFormat::kJson) {
    write_json(result);
  } else {
    write_text(result, first, second);
  }
  return result.same() ? 0 : 1;
}

}  // namespace

Manual same_manual() {
  po::options_description named("Options");
  named.add_options()(
      "output,o",
      text_option("FOLDER"),
      "folder for the traces of commands; default: runs/N with the next free number")(
      "steps",
      text_option("FIRST:LAST"),
      "trace the iterations from FIRST to LAST - 1 of commands, or one iteration; the default is "
      "0:1");
  add_pass_limit_options(named);
  add_format_option(named);
  add_help_option(named);
  return {
      .name = "same",
      .summary = "compare two runs of one program bit for bit",
      .synopses = {"A B [options]"},
      .description =
          {"Says whether two runs of one program in one layout computed the same bits, and if not, "
           "what differed first: of all records that differ, the one that was computed first, with "
           "the number of equal records before it on its rank. Settings that decide whether a "
           "program repeats itself, such as deterministic algorithms and the number of threads, "
           "stand beside it.",
           "A and B are traces, or commands that are run once each and traced from their own "
           "parameters. There is no reference and no bound; for that, use ttrace check."},
      .options = named,
      .run = run_same,
      .exit_codes = {{"0", "all records are equal"},
                     {"1", "a record differs"},
                     {"2", "the comparison was not possible, or bad usage"}},
      .examples = {
          {"ttrace same \"torchrun --nproc-per-node 2 train.py\" \"torchrun --nproc-per-node 2 "
           "train.py\"",
           "does the program repeat itself?"},
          {"ttrace same runs/1/candidate runs/2/candidate", "compare two stored traces"}}};
}

}  // namespace ttrace::cli
