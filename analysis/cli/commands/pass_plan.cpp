#include "analysis/cli/commands/pass_plan.h"

#include "analysis/findings/wording.h"
#include "trace/base/precision.h"
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

// Sets a variable that the passes of this check have in common to what this one alone has.
void replace_variable(Variables& variables, const std::string& name, const std::string& value) {
  std::erase_if(variables, [&](const auto& variable) { return variable.first == name; });
  variables.emplace_back(name, value);
}

}  // namespace

Variables variables(const CheckOptions& options, const std::string& pass) {
  Variables result{{"TTRACE_PASS", pass}, {"TTRACE_START", options.start}};
  result.emplace_back("TTRACE_STEPS", to_string(options.steps.value_or(StepRange{})));
  if (!options.precision.empty()) {
    result.emplace_back("TTRACE_PRECISION", options.precision);
  }
  if (options.dyadic) {
    result.emplace_back("TTRACE_INPUTS", "dyadic");
  }
  if (options.zoom) {
    result.emplace_back("TTRACE_ZOOM", to_string(*options.zoom));
  }
  return result;
}

std::string reference_side(const CheckOptions& options, const RunDirectory& run) {
  return options.rename ? reference_names(run.path()) : run.path();
}

std::string stored_as(const CheckOptions& options, const RunDirectory& run) {
  return options.stored ? options.reference : reference_side(options, run) + "/reference";
}

Pass reference_pass(const CheckOptions& options, const RunDirectory& run, const ReferenceRun& to) {
  Pass pass{.name = to.label("reference"),
            .command = options.rerun,
            .variables = variables(options, "reference"),
            .trace = to.folder,
            .log = run.log(to.label("reference")),
            .complete = [folder = to.folder] { return is_complete(folder); },
            .remedy = ""};
  pass.variables.emplace_back("TTRACE_DIR", absolute(to.folder));
  if (!to.candidate.empty()) {
    pass.variables.emplace_back("TTRACE_CANDIDATE", absolute(to.candidate));
  }
  return pass;
}

Pass noise_pass(const CheckOptions& options,
                const RunDirectory& run,
                const ReferenceRun& to,
                int seed) {
  const std::string table = noise_file(to.folder, seed);
  Pass pass{
      .name = to.label("noise ") + std::to_string(seed) + " of " + std::to_string(options.noise),
      .command = options.rerun,
      .variables = variables(options, "noise"),
      .trace = to.folder,
      .log = run.log(to.label("noise-") + std::to_string(seed)),
      .complete = [table] { return fs::exists(table); },
      .remedy = ""};
  pass.variables.emplace_back("TTRACE_REFERENCE", absolute(to.folder));
  pass.variables.emplace_back("TTRACE_NOISE_SEED", std::to_string(seed));
  if (to.candidate.empty()) {
    pass.remedy = fmt::format("the reference is complete; pass --reference {} to reuse it with {}",
                              to.folder,
                              counted(seed - 1, "noise pass"));
  } else {
    pass.variables.emplace_back("TTRACE_CANDIDATE", absolute(to.candidate));
  }
  return pass;
}

Pass self_check_pass(const CheckOptions& options, const RunDirectory& run, const ReferenceRun& to) {
  Pass pass = noise_pass(options, run, to, kSelfCheckSeed);
  pass.name = to.label("self-check");
  pass.log = run.log(to.label("self-check"));
  if (to.candidate.empty()) {
    pass.remedy = fmt::format(
        "the reference is complete; pass --reference {} to reuse it without "
        "noise passes, or leave --self-check out",
        to.folder);
  }
  return pass;
}

Pass candidate_pass(const CheckOptions& options, const RunDirectory& run) {
  Pass pass{.name = "candidate",
            .command = options.candidate,
            .variables = variables(options, "candidate"),
            .trace = run.candidate(),
            .log = run.log("candidate"),
            .complete = [folder = run.candidate()] { return is_complete(folder); },
            .remedy = ""};
  if (!options.dyadic) {  // a stored reference knows other inputs
    pass.remedy = fmt::format("the reference is complete; pass --reference {} to reuse it",
                              stored_as(options, run));
  }
  pass.variables.emplace_back("TTRACE_DIR", absolute(run.candidate()));
  pass.variables.emplace_back("TTRACE_REFERENCE", absolute(run.reference()));
  if (options.collectives) {
    pass.variables.emplace_back("TTRACE_COLLECTIVES", "1");
  }
  return pass;
}

Pass forced_pass(const CheckOptions& options,
                 const RunDirectory& run,
                 const std::string& precision,
                 const std::string& name,
                 const std::string& folder) {
  Pass pass{.name = name,
            .command = options.rerun,
            .variables = variables(options, "forced"),
            .trace = folder,
            .log = run.log(name),
            .complete = [folder] { return is_complete(folder); },
            .remedy = "let the program compute in Session::precision(), or pass --no-forced"};
  replace_variable(pass.variables, "TTRACE_PRECISION", precision);
  const std::string side = reference_side(options, run);
  pass.variables.emplace_back("TTRACE_DIR", absolute(folder));
  pass.variables.emplace_back("TTRACE_REFERENCE", absolute(side + "/reference"));
  pass.variables.emplace_back("TTRACE_CANDIDATE", absolute(side + "/candidate"));
  return pass;
}

Pass golden_pass_of(const CheckOptions& options, const RunDirectory& run, bool rerouted) {
  const std::string side = reference_side(options, run);
  const std::string folder = golden_pass(side);
  Pass pass{.name = "golden",
            .command = options.rerun,
            .variables = variables(options, "golden"),
            .trace = folder,
            .log = run.log("golden"),
            .complete = [folder] { return is_complete(folder); },
            .remedy = "let the program compute in Session::precision(), or leave --golden out"};
  replace_variable(pass.variables, "TTRACE_PRECISION", std::string(kGoldenPrecision));
  replace_variable(pass.variables, "TTRACE_START", "reference");
  pass.variables.emplace_back("TTRACE_DIR", absolute(folder));
  pass.variables.emplace_back("TTRACE_REFERENCE", absolute(side + "/reference"));
  pass.variables.emplace_back("TTRACE_CANDIDATE",
                              absolute(side + (rerouted ? "/candidate" : "/reference")));
  return pass;
}

}  // namespace ttrace::cli
