#include "analysis/cli/commands/commands.h"
#include "analysis/cli/commands/rename_guess.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
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

int run_rename(const po::variables_map& values) {
  if (values.count("guess") != 0) {
    TTRACE_CHECK(values.count("map") == 0,
                 UsageError,
                 "--guess proposes a map and --map gives one; leave one of them out");
    return run_guess(values);
  }
  const std::string folder = trace_folder_of(values, "rename");
  const auto map = text_of(values, "map");
  TTRACE_CHECK(map, UsageError, "rename does not know which names mean the same; pass --map FILE");
  const auto target = text_of(values, "output");
  TTRACE_CHECK(target, UsageError, "rename does not know where to write; pass -o FOLDER");
  RenameOptions options{.to = read_names(values)};
  ProgressLine progress;
  options.progress = progress.counter("renamed");
  const RenameResult result = rename_trace(folder, *target, RenameMap::load(*map), options);
  progress.clear();
  warn(result.warnings);
  std::cout << counted(result.tensors, "tensor") << " written to " << *target;
  if (result.only_here > 0) {
    std::cout << "; " << result.only_here
              << " left out, because the other program does not have them";
  }
  std::cout << '\n';
  return 0;
}

}  // namespace

Manual rename_manual() {
  po::options_description named("Options");
  named.add_options()(
      "map", text_option("FILE"), "file that says which names mean the same; see docs/rename.md")(
      "to",
      text_option("candidate|reference")->default_value("candidate"),
      "program whose names the new trace gets; TRACE has the other program's")(
      "guess", "propose a map for the two traces; -o names its file (default: it is printed)")(
      "output,o", text_option("PATH"), "folder of the new trace, or file of the proposed map");
  add_format_option(named);
  add_help_option(named);
  return {
      .name = "rename",
      .summary = "translate a trace to the other program's module names, or propose the map",
      .synopses = {"TRACE --map FILE -o FOLDER [options]",
                   "--guess REFERENCE CANDIDATE [-o FILE] [options]"},
      .description =
          {"Use this if the reference and the candidate name their modules differently and each "
           "pass runs as a job of its own; otherwise `ttrace check --rename FILE` does all of it. "
           "The candidate and `ttrace diff` need the reference in the candidate's names. Forced "
           "passes of the reference need the candidate in the reference's names (--to reference).",
           "Start parameters and noise tables are translated, too. The new trace has one rank, "
           "which holds whole tensors.",
           "With --guess, TTrace compares the traces of two programs and proposes the map: from "
           "equal parameters in any arrangement (transposed, fused, split), equal activations, and "
           "the order, shapes and places of modules. Every line has its certainty and its evidence "
           "as a comment. What nothing decides is a question and maps to no tensor: the line says "
           "OPEN, and what it may be. Give both programs the same weights and data; otherwise only "
           "shapes, order and names can be compared."},
      .options = named,
      .run = run_rename,
      .exit_codes =
          {{"0",
            "the new trace was written; with --guess: every tensor has a counterpart or is "
            "known to have none"},
           {"1", "with --guess: questions are open"},
           {"2",
            "nothing was written: the map does not fit the trace, the folder exists, a "
            "trace could not be read, or bad usage"}},
      .examples = {
          {"ttrace rename ref --map plain.rename.yaml -o ref-renamed",
           "write the reference as the candidate would have written it"},
          {"ttrace rename cand --map plain.rename.yaml --to reference -o cand-renamed",
           "write the trace that TTRACE_CANDIDATE names in forced passes of the reference"},
          {"ttrace rename --guess ref cand -o plain.rename.yaml",
           "propose a map for a check with --rename plain.rename.yaml"}}};
}

}  // namespace ttrace::cli
