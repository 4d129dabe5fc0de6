#include "analysis/cli/options/stored_pair.h"

#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/rename/rename.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>

#include <filesystem>
#include <utility>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// The reference that went on with the candidate's choices of experts, where the run has one that
// still fits.
std::string reference_of(const std::string& run) {
  const std::string rerouted = rerouted_reference(run);
  if (!is_complete(rerouted)) {
    return run + "/reference";
  }
  const std::string followed = read_manifest(rerouted).forced_routing;
  return followed == digest_of(read_routing(Trace::open(run + "/candidate"))) ? rerouted
                                                                              : run + "/reference";
}

}  // namespace

StoredPair find_pair(const std::string& command, const std::vector<std::string>& folders) {
  for (const auto& folder : folders) {
    TTRACE_CHECK(std::filesystem::is_directory(folder), UsageError, "there is no folder ", folder);
  }
  if (folders.size() == 2) {
    return {folders[0], folders[1]};
  }
  TTRACE_CHECK(folders.size() == 1,
               UsageError,
               command,
               " takes a reference and a candidate, or one folder made by ttrace check; ",
               folders.size(),
               " were given");
  TTRACE_CHECK(is_run_directory(folders[0]),
               UsageError,
               folders[0],
               " has no reference/ and candidate/ inside, so it was not made by ttrace check; give "
               "a reference and a candidate");
  return {reference_of(folders[0]), folders[0] + "/candidate", folders[0]};
}

Report judge(const StoredPair& pair, DiffOptions options, Completeness completeness) {
  const auto forced = forced_traces(pair.run);
  options.forced = forced ? &*forced : nullptr;
  const auto golden = golden_trace(pair.run);
  options.golden = golden ? &*golden : nullptr;
  ProgressLine progress;
  if (!pair.rename) {
    return compare(pair.reference, pair.candidate, std::move(options), progress, completeness);
  }
  TTRACE_CHECK(completeness == Completeness::kWhole,
               UsageError,
               "--partial and --rename exclude each other: an interrupted trace is not renamed");
  const TemporaryFolder folder("rename");
  const std::string reference = folder.path() + "/reference";
  warn(rename_trace(pair.reference, reference, *pair.rename).warnings);
  Report report = compare(reference, pair.candidate, std::move(options), progress, completeness);
  report.reference.directory = pair.reference;
  return report;
}

void add_rename_option(po::options_description& named) {
  named.add_options()("rename",
                      po::value<std::string>()->value_name("FILE"),
                      "which names are the same, where REFERENCE and CANDIDATE are of programs "
                      "whose modules have different ones; docs/rename.md");
}

void read_rename_option(const po::variables_map& values, StoredPair& pair) {
  if (values.count("rename") == 0) {
    return;
  }
  TTRACE_CHECK(pair.run.empty(),
               UsageError,
               "--rename is for two traces; in ",
               pair.run,
               " all traces have the candidate's names already");
  pair.rename = RenameMap::load(values["rename"].as<std::string>());
}

void add_partial_option(po::options_description& named) {
  named.add_options()(
      "partial",
      "read what an interrupted step left: finished files, and of `.tmp` files what "
      "was flushed; what is not there is no finding");
}

Completeness completeness_of(const po::variables_map& values) {
  return values.count("partial") != 0 ? Completeness::kPartial : Completeness::kWhole;
}

}  // namespace ttrace::cli
