#include "analysis/cli/commands/rename_command.h"

#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/progress.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rename.h"
#include "analysis/rename/rename_map.h"

#include <ttrace/error.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

Names read_names(const po::variables_map& values) {
  const auto& word = values["to"].as<std::string>();
  TTRACE_CHECK(word == name_of(Names::kCandidate) || word == name_of(Names::kReference),
               UsageError,
               "--to is '",
               word,
               "'; it must be candidate or reference");
  return word == name_of(Names::kCandidate) ? Names::kCandidate : Names::kReference;
}

}  // namespace

Manual rename_manual() {
  po::options_description named("Options");
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  named.add_options()("map", text("FILE"), "which names are the same; docs/rename.md")(
      "to",
      text("candidate|reference")->default_value("candidate"),
      "whose names TRACE gets; it has the other ones")(
      "output,o", text("FOLDER"), "the trace to write");
  add_help_option(named);
  return {
      .name = "rename",
      .summary = "write a trace in the names of a program with other modules",
      .synopses = {"TRACE --map FILE -o FOLDER [options]"},
      .description =
          {"For a reference and a candidate whose modules have different names. `ttrace check "
           "--rename FILE` does all of it; this is for passes that run as jobs of their own: the "
           "candidate, and `ttrace diff`, get the reference in the candidate's names, and forced "
           "passes of the reference the candidate in the reference's (--to reference).",
           "Start parameters and noise tables are renamed with the trace. The result is of one "
           "rank, with whole tensors."},
      .options = named,
      .exit_codes = {{"0", "the trace was written"},
                     {"2",
                      "it was not: the map does not fit the trace, an existing folder, bad usage"}},
      .examples = {{"ttrace rename ref --map plain.rename.yaml -o ref-renamed",
                    "the reference as the candidate would have written it"},
                   {"ttrace rename cand --map plain.rename.yaml --to reference -o cand-renamed",
                    "what TTRACE_CANDIDATE of the reference's forced passes takes"}}};
}

int run_rename(const Arguments& arguments) {
  const Manual manual = rename_manual();
  const po::variables_map values = parse(arguments, manual.options, "trace");
  if (values.count("help") != 0) {
    print_help(std::cout, manual);
    return 0;
  }
  const std::string folder = trace_folder_of(values, "rename");
  TTRACE_CHECK(values.count("map") != 0, UsageError, "rename needs --map FILE");
  TTRACE_CHECK(values.count("output") != 0, UsageError, "rename needs -o FOLDER");
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
  std::cout << counted(static_cast<std::int64_t>(result.tensors), "tensor", "tensors")
            << " written to " << target;
  if (result.only_here > 0) {
    std::cout << ", " << result.only_here << " left out that the other program has not";
  }
  std::cout << '\n';
  return 0;
}

}  // namespace ttrace::cli
