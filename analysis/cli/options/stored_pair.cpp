#include "analysis/cli/options/stored_pair.h"

#include "analysis/align/compatibility.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/passes.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/findings/notes.h"
#include "analysis/infer/settle.h"
#include "analysis/rename/rename.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/draws.h"
#include "trace/merge/gradient_choice.h"
#include "trace/merge/noise_of_ranks.h"
#include "trace/samples/align_samples.h"

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
  const Trace candidate = Trace::open(run + "/candidate");
  return followed == digest_of_choices(candidate) ? rerouted : run + "/reference";
}

std::optional<Trace> golden_trace(const std::string& run) {
  if (run.empty() || !is_complete(golden_pass(run))) {
    return std::nullopt;
  }
  return Trace::open(golden_pass(run));
}

// A pass that ran and left no complete trace, and what follows.
struct BrokenPass {
  std::string name;
  std::string remark;
};

std::vector<BrokenPass> broken_passes(const std::string& run) {
  std::vector<BrokenPass> broken;
  const auto add = [&](const char* effect, const char* pass, const std::string& folder) {
    const std::string log = fmt::format("{}/logs/{}.log", run, pass);
    if (std::filesystem::exists(log) && !is_complete(folder)) {
      broken.push_back(
          {pass,
           fmt::format(
               "{}, because the pass {} has no complete trace; {} says why", effect, pass, log)});
    }
  };
  if (!run.empty()) {
    const char* const operators = "operators are not checked one by one";
    add(operators, "forced-wide", forced_wide(run));
    add(operators, "forced-native", forced_native(run));
    add("no tensor is compared with FP64", "golden", golden_pass(run));
  }
  return broken;
}

// What it costs that neither program follows the precision of a pass; nothing if one does.
std::optional<std::string> unforced(const StoredPair& pair) {
  const Manifest reference = read_manifest(pair.reference);
  if (pair.run.empty() || reference.precision == "f64" || !reference.intended.empty() ||
      !read_manifest(pair.candidate).intended.empty() ||
      std::filesystem::exists(forced_wide(pair.run))) {
    return std::nullopt;
  }
  return fmt::format(
      "operators are not checked one by one, because the programs compute in {} whatever a pass "
      "asks for; make the parameters in ttrace.dtype (docs/python.md)",
      reference.precision);
}

Report compare(const std::string& reference,
               const std::string& candidate,
               DiffOptions options,
               Completeness completeness) {
  ProgressLine progress;
  options.progress = progress.counter("comparing");
  const auto open = completeness == Completeness::kWhole ? Trace::open : Trace::open_partial;
  const Trace right = open(reference);
  Trace placed = open(candidate);
  require_followed(right, placed);
  const SampleAlignment samples = align_samples(right, placed);
  options.samples = &samples;
  const std::vector<SettledClass> settled = settle_placements(right, placed, options.threads);
  const std::vector<GradientChoice> choices = settle_gradient_choices(right, placed);
  Report report = diff(right, placed, options);
  for (const SettledClass& tensors : settled) {
    report.inferred.push_back(tensors.sentence());
  }
  note_gradient_choices(choices, report);
  progress.clear();
  warn(report.warnings);
  return report;
}

// The same, with the reference in the candidate's names.
Report compare_renamed(const StoredPair& pair, DiffOptions options, Completeness completeness) {
  TTRACE_CHECK(completeness == Completeness::kWhole,
               UsageError,
               "an interrupted trace cannot be renamed; leave --partial or --rename out");
  const TemporaryFolder folder("rename");
  const std::string reference = folder.path() + "/reference";
  warn(rename_trace(pair.reference, reference, *pair.rename).warnings);
  Report report = compare(reference, pair.candidate, std::move(options), completeness);
  report.reference.directory = pair.reference;
  return report;
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

std::optional<ForcedTraces> forced_traces(const std::string& run) {
  if (run.empty() || !is_complete(forced_wide(run)) || !is_complete(forced_native(run))) {
    return std::nullopt;
  }
  return ForcedTraces{Trace::open(forced_wide(run)), Trace::open(forced_native(run))};
}

Report judge(const StoredPair& pair, DiffOptions options, Completeness completeness) {
  write_noise_of_ranks(pair.reference);
  const auto forced = forced_traces(pair.run);
  options.forced = forced ? &*forced : nullptr;
  const auto golden = golden_trace(pair.run);
  options.golden = golden ? &*golden : nullptr;
  const std::vector<BrokenPass> broken = broken_passes(pair.run);
  for (const BrokenPass& pass : broken) {
    options.remarks.push_back(pass.remark);
  }
  if (auto sentence = unforced(pair)) {
    options.remarks.push_back(*std::move(sentence));
  }
  for (const Names side : kBothNames) {
    if (auto sentence = failed_later(side == Names::kReference ? pair.reference : pair.candidate)) {
      options.not_seen.push_back({NotSeenKind::kLater, side, *std::move(sentence)});
    }
  }
  Report report = pair.rename
                      ? compare_renamed(pair, std::move(options), completeness)
                      : compare(pair.reference, pair.candidate, std::move(options), completeness);
  for (const BrokenPass& pass : broken) {
    report.broken_off.push_back(pass.name);
  }
  return report;
}

void add_rename_option(po::options_description& named) {
  named.add_options()("rename",
                      text_option("FILE"),
                      "file that says which names mean the same, if the programs of REFERENCE and "
                      "CANDIDATE name their modules differently; see docs/rename.md");
}

void read_rename_option(const po::variables_map& values, StoredPair& pair) {
  const auto file = text_of(values, "rename");
  if (!file) {
    return;
  }
  TTRACE_CHECK(pair.run.empty(),
               UsageError,
               fmt::format("--rename needs two traces, but all traces in {} already have the "
                           "candidate's names; leave --rename out",
                           pair.run));
  pair.rename = RenameMap::load(*file);
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
