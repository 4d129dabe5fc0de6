#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/helper_program.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/findings/wording.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <iostream>

namespace po = boost::program_options;
namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

// The folder without "." and last slashes, so that it has a name of its own. Throws UsageError.
fs::path folder_to_pack(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(words.size() == 1,
               UsageError,
               fmt::format("pack needs one folder, but {} given", words_given(words)));
  std::error_code error;
  TTRACE_CHECK(fs::is_directory(words[0], error), UsageError, "there is no folder ", words[0]);
  TTRACE_CHECK(
      is_run_directory(words[0]) || fs::exists(words[0] + "/manifest.json", error),
      UsageError,
      words[0],
      " is neither a trace nor a folder of ttrace check; name one of these, which ttrace ls lists");
  return fs::canonical(words[0]);
}

// A stored reference that a check used is a link of its folder. Links further below are nobody's of
// ours, and what they lead to must not end up in a file that goes to others.
void refuse_links_below(const fs::path& folder) {
  for (const auto& top : fs::directory_iterator(folder)) {
    if (!top.is_directory()) {
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(top.path())) {
      TTRACE_CHECK(
          !entry.is_symlink(),
          UsageError,
          entry.path().string(),
          " is a link, which ttrace does not make; remove it, or put its file in its place");
    }
  }
}

std::string output_of(const po::variables_map& values, const fs::path& folder) {
  const std::string chosen = values.count("output") != 0 ? values["output"].as<std::string>()
                                                         : folder.filename().string() + ".tar.gz";
  TTRACE_CHECK(!fs::exists(chosen),
               UsageError,
               chosen,
               " exists already; remove it, or choose another file with -o");
  return chosen;
}

int run_pack(const po::variables_map& values) {
  const fs::path folder = folder_to_pack(values);
  refuse_links_below(folder);
  const std::string file = output_of(values, folder);
  const std::string part = file + ".part";
  const NoteInterrupts interrupts;
  TemporaryFolder scratch("pack");
  // Values hardly compress, and the least effort is four times as fast as the usual one.
  const HelperOutcome tar =
      run_helper(fmt::format("tar --create --dereference --use-compress-program "
                             "'gzip -1' --file {} --directory {} -- {}",
                             shell_word(fs::absolute(part).string()),
                             shell_word(folder.parent_path().string()),
                             shell_word(folder.filename().string())),
                 scratch.path());
  std::error_code error;
  if (!tar.well) {
    fs::remove(part, error);
    TTRACE_THROW(UsageError, fmt::format("tar could not write {}: {}", file, tar.output));
  }
  fs::rename(part, file);
  std::cout << fmt::format(
      "{}: {}; `tar xzf` unpacks it, anywhere\n", file, counted(fs::file_size(file), "byte"));
  return 0;
}

}  // namespace

Manual pack_manual() {
  po::options_description named("Options");
  named.add_options()("output,o",
                      text_option("FILE"),
                      "what to write; the default is the folder's name and .tar.gz");
  add_help_option(named);
  return {
      .name = "pack",
      .summary = "put a trace, or the folder of a check, into one file for another machine",
      .synopses = {"FOLDER [-o FILE.tar.gz]"},
      .description = {"Writes traces, logs and reports to one compressed file. A stored reference "
                      "that a check used is a link of its folder; the file has the trace itself. "
                      "Needs tar and gzip."},
      .options = named,
      .run = run_pack,
      .exit_codes = {{"0", "the file is complete"}, {"2", "nothing was written, or bad usage"}},
      .examples = {{"ttrace pack runs/1", "write 1.tar.gz, for example to attach it to an issue"}}};
}

}  // namespace ttrace::cli
