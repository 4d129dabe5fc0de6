#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/progress.h"
#include "analysis/findings/wording.h"
#include "analysis/verify.h"

#include <fmt/core.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

int run_verify(const po::variables_map& values) {
  const std::string folder = trace_folder_of(values, "verify");
  ProgressLine progress;
  VerifyProgress show;
  if (progress.visible()) {
    show = [&progress](const std::string& what, std::size_t done, std::size_t total) {
      progress.show_rarely(what + " " + std::to_string(done) + " of " + std::to_string(total));
    };
  }
  const Verification result = verify(folder, show);
  progress.clear();
  for (const std::string& problem : result.problems) {
    std::cout << problem << '\n';
  }
  if (result.undigested > 0) {
    std::cout << fmt::format(
        "{} {} no digests of {} tables and attributes, because an earlier version wrote {}: only "
        "values were compared with theirs\n",
        counted(result.undigested, "file"),
        result.undigested == 1 ? "has" : "have",
        result.undigested == 1 ? "its" : "their",
        result.undigested == 1 ? "it" : "them");
  }
  std::cout << fmt::format(
      "{}: {}, {}, {} read\n",
      result.problems.empty() ? "sound" : counted(result.problems.size(), "problem"),
      counted(result.files, "file"),
      counted(result.tensors, "tensor"),
      counted(result.bytes, "byte"));
  return result.problems.empty() ? 0 : 1;
}

}  // namespace

Manual verify_manual() {
  po::options_description named("Options");
  add_help_option(named);
  return {
      .name = "verify",
      .summary = "check that a stored trace is sound",
      .synopses = {"TRACE"},
      .description = {"Reads the whole trace and prints one line per problem. It checks that every "
                      "rank's file of every step is complete and belongs to the manifest, that "
                      "every record lies within its dataset and has the bytes that were written "
                      "(XXH3), that tables, attributes and the manifest are what was written, that "
                      "the layouts agree, that the ranks' parts form whole tensors, "
                      "and that start parameters and noise tables are readable."},
      .options = named,
      .run = run_verify,
      .exit_codes = {{"0", "the trace is sound"},
                     {"1", "the trace has problems"},
                     {"2", "nothing could be read, or bad usage"}},
      .examples = {{"ttrace verify runs/1/reference", "check a reference before you archive it"}}};
}

}  // namespace ttrace::cli
