#include "analysis/cli/commands/verify_command.h"

#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/progress.h"
#include "analysis/findings/wording.h"
#include "analysis/verify.h"

#include <ttrace/error.h>

#include <iostream>

namespace po = boost::program_options;

namespace ttrace::cli {

Manual verify_manual() {
  po::options_description named("Options");
  add_help_option(named);
  return {
      .name = "verify",
      .summary = "check that a stored trace is sound",
      .synopses = {"TRACE"},
      .description = {"Reads everything: every rank's file of every step stands under its final "
                      "name and belongs to the manifest, every record lies within its dataset "
                      "and has the bytes that were written (XXH3), layouts agree, the ranks' "
                      "parts make whole tensors, start parameters and noise tables are readable. "
                      "One line per problem."},
      .options = named,
      .exit_codes = {{"0", "sound"},
                     {"1", "problems were found"},
                     {"2", "nothing could be read at all, or bad usage"}},
      .examples = {{"ttrace verify runs/1/reference", "before a reference is archived"}}};
}

int run_verify(const Arguments& arguments) {
  const Manual manual = verify_manual();
  const po::variables_map values = parse(arguments, manual.options, "trace");
  if (values.count("help") != 0) {
    print_help(std::cout, manual);
    return 0;
  }
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
  std::cout << (result.problems.empty()
                    ? "sound"
                    : counted(
                          static_cast<std::int64_t>(result.problems.size()), "problem", "problems"))
            << ": " << counted(static_cast<std::int64_t>(result.files), "file", "files") << ", "
            << counted(static_cast<std::int64_t>(result.tensors), "tensor", "tensors") << ", "
            << counted(static_cast<std::int64_t>(result.bytes), "byte", "bytes") << " read\n";
  return result.problems.empty() ? 0 : 1;
}

}  // namespace ttrace::cli
