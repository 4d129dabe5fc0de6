#include "analysis/cli/options/stored_pair.h"

#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/rename/rename.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <utility>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

// The reference that reused the candidate's choices of experts, if the run has one that still fits.
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
  TTRACE_CHECK(
      folders.size() == 1,
      UsageError,
      fmt::format(
          "{} needs a reference and a candidate, or one folder made by ttrace check, but {} given",
          command,
          words_given(folders)));
  TTRACE_CHECK(is_run_directory(folders[0]),
               UsageError,
               fmt::format("{} was not made by ttrace check: it has no reference/ and candidate/ "
                           "inside; give a reference and a candidate",
                           folders[0]));
  return {reference_of(folders[0]), folders[0] + "/candidate", folders[0]};
}

Report judge(const StoredPair& pair, DiffOptions options, Completeness completeness) {
  const auto forced = forced_traces(pair.run);
  options.forced = forced ? &*forced : nullptr;
  const auto golden = golden_trace(pair.run);
  options.golden = golden ? &*golden : nullptr;
  options.remarks = remarks_of_passes(pair.run);
  ProgressLine progress;
  if (!pair.rename) {
    return compare(pair.reference, pair.candidate, std::move(options), progress, completeness);
  }
  TTRACE_CHECK(completeness == Completeness::kWhole,
               UsageError,
               "an interrupted trace cannot be renamed; leave --partial or --rename out");
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
                      "file that says which names mean the same, if the programs of REFERENCE and "
                      "CANDIDATE name their modules differently; see docs/rename.md");
}

void read_rename_option(const po::variables_map& values, StoredPair& pair) {
  if (values.count("rename") == 0) {
    return;
  }
  TTRACE_CHECK(pair.run.empty(),
               UsageError,
               fmt::format("--rename needs two traces, but all traces in {} already have the "
                           "candidate's names; leave --rename out",
                           pair.run));
  pair.rename = RenameMap::load(values["rename"].as<std::string>());
}

void add_partial_option(po::options_description& named) {
  named.add_options()("partial",
                      "compare an interrupted step: finished files and the flushed part of `.tmp` "
                      "files; a missing tensor is not a finding");
}

Completeness completeness_of(const po::variables_map& values) {
  return values.count("partial") != 0 ? Completeness::kPartial : Completeness::kWhole;
}

}  // namespace ttrace::cli
