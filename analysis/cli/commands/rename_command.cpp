#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/progress.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rename.h"
#include "analysis/rename/rename_map.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

Names read_names(const po::variables_map& values) {
  const auto& word = values["to"].as<std::string>();
  TTRACE_CHECK(word == name_of(Names::kCandidate) || word == name_of(Names::kReference),
               UsageError,
               fmt::format("--to is '{}'; it must be candidate or reference", word));
  return word == name_of(Names::kCandidate) ? Names::kCandidate : Names::kReference;
}

}  // namespace

Manual rename_manual() {
  po::options_description named("Options");
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  named.add_options()(
      "map", text("FILE"), "file that says which names mean the same; see docs/rename.md")(
      "to",
      text("candidate|reference")->default_value("candidate"),
      "program whose names the new trace gets; TRACE has the other program's")(
      "output,o", text("FOLDER"), "folder of the new trace");
  add_help_option(named);
  return {
      .name = "rename",
      .summary = "translate a trace to the other program's module names",
      .synopses = {"TRACE --map FILE -o FOLDER [options]"},
      .description =
          {"Use this if the reference and the candidate name their modules differently and each "
           "pass runs as a job of its own; otherwise `ttrace check --rename FILE` does all of it. "
           "The candidate and `ttrace diff` need the reference in the candidate's names. Forced "
           "passes of the reference need the candidate in the reference's names (--to reference).",
           "Start parameters and noise tables are translated, too. The new trace has one rank, "
           "which holds whole tensors."},
      .options = named,
      .exit_codes = {{"0", "the new trace was written"},
                     {"2",
                      "nothing was written: the map does not fit the trace, the folder exists, or "
                      "bad usage"}},
      .examples = {
          {"ttrace rename ref --map plain.rename.yaml -o ref-renamed",
           "write the reference as the candidate would have written it"},
          {"ttrace rename cand --map plain.rename.yaml --to reference -o cand-renamed",
           "write the trace that TTRACE_CANDIDATE names in forced passes of the reference"}}};
}

int run_rename(const po::variables_map& values) {
  const std::string folder = trace_folder_of(values, "rename");
  TTRACE_CHECK(values.count("map") != 0,
               UsageError,
               "rename does not know which names mean the same; pass --map FILE");
  TTRACE_CHECK(values.count("output") != 0,
               UsageError,
               "rename does not know where to write; pass -o FOLDER");
  const auto& target = values["output"].as<std::string>();
  RenameOptions options{.to = read_names(values)};
  ProgressLine progress;
  options.progress = [&progress](std::size_t done, std::size_t total) {
    progress.show_rarely("renamed " + std::to_string(done) + " of " + std::to_string(total));
  };
  const RenameResult result =
      rename_trace(folder, target, RenameMap::load(values["map"].as<std::string>()), options);
  progress.clear();
  warn(result.warnings);
  std::cout << counted(result.tensors, "tensor") << " written to " << target;
  if (result.only_here > 0) {
    std::cout << "; " << result.only_here
              << " left out, because the other program does not have them";
  }
  std::cout << '\n';
  return 0;
}

}  // namespace ttrace::cli
