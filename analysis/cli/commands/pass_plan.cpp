#include "analysis/cli/commands/pass_plan.h"

#include "trace/base/precision.h"
#include "trace/file/capture_counts.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"

#include <fmt/core.h>

#include <filesystem>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

std::string absolute(const std::string& path) {
  return fs::absolute(path).lexically_normal().string();
}

// Tells a pass how --auto finds a model.
void expect_to_be_attached(const CheckOptions& options, Pass& pass) {
  if (options.inference) {
    pass.unattached =
        "the program called no model that has parameters in a process that --inference watches; "
        "add TTrace's lines to it (docs/python.md)";
  } else if (options.automatic) {
    pass.unattached =
        "the program called no model whose parameters an optimizer of torch holds; where it trains "
        "nothing, add --inference, and else TTrace's lines (docs/python.md)";
  }
}

// A pass of the reference's program that leaves a trace in `folder`.
Pass tracing_pass(const CheckOptions& options,
                  const RunDirectory& run,
                  const std::string& kind,
                  const std::string& name,
                  const std::string& folder) {
  Pass pass{.name = name,
            .command = options.rerun,
            .variables = variables(options, kind),
            .trace = folder,
            .log = run.log(name),
            .complete = [folder] { return is_complete(folder); },
            .remedy = "",
            .token = [folder] { return read_manifest(folder).run; },
            .keeper = options.keeper};
  expect_to_be_attached(options, pass);
  pass.variables["TTRACE_DIR"] = absolute(folder);
  return pass;
}

}  // namespace

Variables variables(const CheckOptions& options, const std::string& pass) {
  Variables result{{"TTRACE_PASS", pass},
                   {"TTRACE_START", options.start},
                   {"TTRACE_STEPS", to_string(options.steps.value_or(StepRange{}))}};
  if (!options.precision.empty()) {
    result["TTRACE_PRECISION"] = options.precision;
  }
  if (options.keep) {
    result["TTRACE_KEEP"] = name_of(*options.keep);
  }
  if (!options.elements.empty()) {
    result["TTRACE_ELEMENTS"] = options.elements;
  }
  if (options.dyadic) {
    result["TTRACE_INPUTS"] = "dyadic";
  }
  if (options.inference) {
    result["TTRACE_AUTO"] = "inference";
  }
  if (options.zoom) {
    result["TTRACE_ZOOM"] = to_string(*options.zoom);
  }
  return result;
}

std::string reference_side(const CheckOptions& options, const RunDirectory& run) {
  return options.rename ? reference_names(run.path()) : run.path();
}

std::string stored_as(const CheckOptions& options, const RunDirectory& run) {
  return options.stored ? options.reference : reference_side(options, run) + "/reference";
}

Pass dry_pass(const CheckOptions& options, const RunDirectory& run) {
  const std::string folder = run.path() + "/dry";
  Pass pass{.name = "dry candidate",
            .command = options.candidate,
            .variables = variables(options, "candidate"),
            .trace = folder,
            .log = run.log("dry"),
            .complete = [folder] { return counts_are_complete(folder); },
            .remedy = "",
            .awaited = "its first traced step was done"};
  expect_to_be_attached(options, pass);
  pass.variables["TTRACE_DIR"] = absolute(folder);
  const std::int64_t first = options.steps.value_or(StepRange{}).first;
  pass.variables["TTRACE_STEPS"] = to_string(StepRange{first, first + 1});
  pass.variables["TTRACE_COUNT"] = "1";
  pass.variables["TTRACE_START"] = "own";  // there is no reference yet
  pass.variables.erase("TTRACE_INPUTS");   // the reference's trace says what these are
  return pass;
}

Pass reference_pass(const CheckOptions& options, const RunDirectory& run, const ReferenceRun& to) {
  Pass pass = tracing_pass(options, run, "reference", to.label("reference"), to.folder);
  if (!to.candidate.empty()) {
    pass.variables["TTRACE_REFERENCE"] = absolute(reference_side(options, run) + "/reference");
    pass.variables["TTRACE_CANDIDATE"] = absolute(to.candidate);
  }
  return pass;
}

Pass noise_pass(const CheckOptions& options,
                const RunDirectory& run,
                const ReferenceRun& to,
                int seed) {
  const std::string table = noise_file(to.folder, seed);
  const std::string trace = noise_trace(to.folder, seed);  // of several ranks
  Pass pass{
      .name = to.label("noise ") + std::to_string(seed) + " of " + std::to_string(options.noise),
      .command = options.rerun,
      .variables = variables(options, "noise"),
      .trace = to.folder,
      .log = run.log(to.label("noise-") + std::to_string(seed)),
      .complete = [=] { return fs::exists(table) || is_complete(trace); },
      .remedy = "",
      .token = [=] { return fs::exists(table) ? run_of_noise(table) : read_manifest(trace).run; },
      .keeper = options.keeper};
  pass.variables["TTRACE_REFERENCE"] = absolute(to.folder);
  pass.variables["TTRACE_NOISE_SEED"] = std::to_string(seed);
  if (to.candidate.empty()) {
    pass.remedy = fmt::format(
        "reference and candidate are complete; pass --reference {} to go on "
        "with the noise passes that are missing, or --noise 0 to do without",
        stored_as(options, run));
  } else {
    pass.variables["TTRACE_CANDIDATE"] = absolute(to.candidate);
  }
  return pass;
}

Pass self_check_pass(const CheckOptions& options, const RunDirectory& run, const ReferenceRun& to) {
  Pass pass = noise_pass(options, run, to, kSelfCheckSeed);
  pass.name = to.label("self-check");
  pass.log = run.log(to.label("self-check"));
  if (to.candidate.empty()) {
    pass.remedy = fmt::format(
        "reference and candidate are complete; pass --reference {} --no-self-check to go on "
        "without it",
        stored_as(options, run));
  }
  return pass;
}

Pass candidate_pass(const CheckOptions& options, const RunDirectory& run) {
  Pass pass = tracing_pass(options, run, "candidate", "candidate", run.candidate());
  pass.command = options.candidate;
  pass.keeper.clear();
  if (!options.dyadic) {  // a stored reference knows other inputs
    pass.remedy = fmt::format("the reference is complete; pass --reference {} to reuse it",
                              stored_as(options, run));
  }
  pass.variables["TTRACE_REFERENCE"] = absolute(run.reference());
  if (options.collectives) {
    pass.variables["TTRACE_COLLECTIVES"] = "1";
  }
  return pass;
}

Pass lone_pass(const CheckOptions& options, const RunDirectory& run, const std::string& name) {
  Pass pass = tracing_pass(options, run, "candidate", name, run.path() + "/" + name);
  pass.name += " run";
  pass.command = options.candidate;
  pass.keeper.clear();
  pass.variables["TTRACE_START"] = "own";
  pass.variables["TTRACE_COLLECTIVES"] = "1";
  return pass;
}

Pass forced_pass(const CheckOptions& options,
                 const RunDirectory& run,
                 const std::string& precision,
                 const std::string& name,
                 const std::string& folder,
                 bool rerouted) {
  Pass pass = tracing_pass(options, run, "forced", name, folder);
  pass.remedy = "let the program compute in Session::precision(), or pass --no-forced";
  const std::string side = reference_side(options, run);
  pass.variables["TTRACE_PRECISION"] = precision;
  // What nobody declared is settled against it: after other choices, values say nothing of that.
  pass.variables["TTRACE_REFERENCE"] =
      absolute(rerouted ? rerouted_reference(side) : side + "/reference");
  pass.variables["TTRACE_CANDIDATE"] = absolute(side + "/candidate");
  pass.variables["TTRACE_SETTLED"] = absolute(settled_placements(side));
  return pass;
}

Pass golden_pass_of(const CheckOptions& options, const RunDirectory& run, bool rerouted) {
  const std::string side = reference_side(options, run);
  Pass pass = tracing_pass(options, run, "golden", "golden", golden_pass(side));
  pass.remedy = "let the program compute in Session::precision(), or leave --golden out";
  pass.variables["TTRACE_PRECISION"] = kGoldenPrecision;
  pass.variables["TTRACE_START"] = "reference";
  pass.variables["TTRACE_REFERENCE"] = absolute(side + "/reference");
  pass.variables["TTRACE_CANDIDATE"] = absolute(side + (rerouted ? "/candidate" : "/reference"));
  return pass;
}

}  // namespace ttrace::cli
