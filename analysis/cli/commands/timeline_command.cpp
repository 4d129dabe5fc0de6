#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/findings/wording.h"
#include "analysis/timeline/timeline.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct Side {
  std::string name;
  Trace trace;
};

// The two traces of a check, or the one that is given.
std::vector<Side> sides_of(const std::string& folder) {
  std::vector<Side> sides;
  if (is_run_directory(folder)) {
    sides.push_back({"candidate", Trace::open(folder + "/candidate")});
    sides.push_back({"reference", Trace::open(folder + "/reference")});
    return sides;
  }
  Trace trace = Trace::open(folder);
  std::string pass = trace.manifest().pass;
  sides.push_back({std::move(pass), std::move(trace)});
  return sides;
}

// The report to paint: the one that is given, or that of the check.
JudgedIds judged_of(const po::variables_map& values, const std::string& folder) {
  if (const auto report = text_of(values, "report")) {
    return read_judged_ids(*report);
  }
  const std::string report = folder + "/report.json";
  std::error_code ignored;
  return is_run_directory(folder) && std::filesystem::exists(report, ignored)
             ? read_judged_ids(report)
             : JudgedIds();
}

void warn_of_order(const Side& side) {
  std::cerr << "ttrace: " << side.trace.directory()
            << " has no times, because an earlier version wrote it or it was put together from "
               "other files; its timeline shows the order alone, a microsecond per record\n";
}

TimelineCounts write(const std::vector<Side>& sides,
                     const JudgedIds& judged,
                     const Selection& selection,
                     const std::string& file) {
  Json facts = {{"program", "ttrace timeline"}};
  for (const Side& side : sides) {
    facts[side.name] = side.trace.directory();
    facts[side.name + " times"] = has_times(side.trace) ? "measured" : "order of records";
  }
  TraceEventWriter writer(file, facts);
  TimelineCounts all;
  for (const Side& side : sides) {
    if (!has_times(side.trace)) {
      warn_of_order(side);
    }
    const std::string name = has_times(side.trace) ? side.name : side.name + ", order only,";
    const TimelineCounts counts = add_timeline(name, side.trace, judged, writer, selection);
    all.ranks += counts.ranks;
    all.slices += counts.slices;
    all.records += counts.records;
    all.marks += counts.marks;
  }
  TTRACE_CHECK(
      all.ranks > 0,
      UsageError,
      fmt::format("--steps and --ranks leave nothing of {} to show; choose steps and ranks "
                  "that it has, which `ttrace ls` lists",
                  sides.front().trace.directory()));
  writer.commit();
  return all;
}

int run_timeline(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(words.size() == 1,
               UsageError,
               fmt::format("timeline needs one folder, but {} given", words_given(words)));
  const auto file = text_of(values, "output");
  TTRACE_CHECK(file, UsageError, "timeline does not know where to write; pass -o FILE.json");
  std::error_code error;
  TTRACE_CHECK(!std::filesystem::exists(*file, error),
               UsageError,
               fmt::format("{} exists; remove it, or choose another file for -o", *file));
  TTRACE_CHECK(std::filesystem::is_directory(words[0], error),
               UsageError,
               fmt::format("there is no folder {}", words[0]));
  const Selection selection = selection_of(values);
  const JudgedIds judged = judged_of(values, words[0]);
  const TimelineCounts counts = write(sides_of(words[0]), judged, selection, *file);
  std::cout << counted(counts.ranks, "rank") << ", " << counted(counts.slices, "slice") << " and "
            << counted(counts.records, "record") << " written to " << *file;
  if (counts.marks > 0) {
    std::cout << "; " << counted(counts.marks, "mark") << " of tensors that diverged";
  }
  std::cout << "; open it at https://ui.perfetto.dev\n";
  return 0;
}

}  // namespace

Manual timeline_manual() {
  po::options_description named("Options");
  named.add_options()(
      "output,o", text_option("FILE"), "the file to write; ui.perfetto.dev takes FILE.json");
  named.add_options()("report",
                      text_option("FILE"),
                      "paint the findings of this report (`ttrace diff --format json=FILE`); "
                      "default: the one in a folder made by ttrace check");
  add_range_options(named);
  add_help_option(named);
  return {
      .name = "timeline",
      .summary = "write a timeline of a trace for Perfetto, one track per rank",
      .synopses = {"TRACE -o FILE.json [options]", "RUN -o FILE.json [options]"},
      .description =
          {"Writes trace events in JSON, which https://ui.perfetto.dev and Perfetto's trace "
           "processor open. Every rank is a process, named with its coordinates. Its tracks show "
           "the forward and the backward of modules, the collectives if they were recorded, and a "
           "mark for every record with its id, shape, type and bytes.",
           "RUN is a folder made by ttrace check: the ranks of candidate and reference are shown "
           "below each other, both from the beginning of their first step. Tensors that diverged "
           "have the argument `verdict` and a mark on the track `diverged`, where the first "
           "divergence is called so.",
           "Times are the host's, in a run that was traced: they show what came when, and not how "
           "fast the program is. A trace without times shows the order alone. See "
           "docs/timeline.md."},
      .options = named,
      .run = run_timeline,
      .exit_codes = {{"0", "the file was written"},
                     {"2", "the trace could not be read, the file exists, or bad usage"}},
      .examples = {
          {"ttrace timeline runs/1 -o timeline.json", "show the last check, with what diverged"},
          {"ttrace timeline runs/1/candidate -o timeline.json", "show the candidate alone"},
          {"ttrace timeline runs/1 -o timeline.json --steps 3 --ranks 0-1",
           "show one step of the first two ranks"}}};
}

}  // namespace ttrace::cli
