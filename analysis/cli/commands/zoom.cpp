#include "analysis/cli/commands/zoom.h"

#include "analysis/cli/options/stored_pair.h"
#include "analysis/diff.h"
#include "analysis/infer/settle.h"
#include "analysis/zoom/locate.h"
#include "analysis/zoom/target.h"
#include "analysis/zoom/zoomed_pair.h"
#include "trace/file/trace_reader.h"
#include "trace/samples/align_samples.h"

#include <ttrace/error.h>

#include <filesystem>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

// The traces of the passes, under common names.
ZoomReport compare_operators(const RunDirectory& run,
                             const std::string& reference,
                             DiffOptions judging) {
  Trace left = Trace::open(reference);
  Trace right = Trace::open(run.candidate());
  const SampleAlignment samples = align_samples(left, right);
  judging.samples = &samples;
  const ZoomedPair pair = align_operators(left, right);
  auto forced = forced_traces(run.path());
  if (forced) {
    align_pass(pair.reference, forced->wide);
    align_pass(pair.reference, forced->native);
  }
  static_cast<void>(settle_placements(
      left, right, judging.threads, [&](const TensorId& id) { return pair.is_summed_later(id); }));
  judging.forced = forced ? &*forced : nullptr;
  judging.golden = nullptr;
  judging.progress = {};
  SelectionRules operators;
  operators.kinds = {Kind::kOperator, Kind::kOperatorGrad};
  judging.selection = Selection(operators);
  if (pair.paired.empty()) {
    return locate(pair, Report());
  }
  return locate(pair, diff(left, right, judging));
}

void require_commands(const CheckOptions& options) {
  TTRACE_CHECK(!options.rerun.empty(),
               UsageError,
               "a zoom runs the reference again, but its command is unknown; pass --rerun COMMAND");
  TTRACE_CHECK(!options.rename,
               UsageError,
               "a zoom needs the same names of modules in both programs, but --rename says that "
               "they differ; leave --zoom out");
  TTRACE_CHECK(!options.dyadic,
               UsageError,
               "a zoom judges by noise passes, but --dyadic runs none; leave one of them out");
}

}  // namespace

ZoomTarget target_of(const Report& report, const std::string& module) {
  if (!report.first_divergence) {
    TTRACE_CHECK(!module.empty(),
                 UsageError,
                 "nothing diverged, so there is nothing to zoom into; name a module with --module");
    const TensorId& first = report.tensors.front().id;
    return {first.step, kNoMicrobatch, {module}};
  }
  const TensorId& id = report.tensors[*report.first_divergence].id;
  if (!module.empty()) {
    return {id.step, id.microbatch, {module}};
  }
  return zoom_target(id, Trace::open(report.reference.directory));
}

ZoomReport zoom_into(const ZoomTarget& target,
                     CheckOptions options,
                     const std::string& run,
                     Course& course) {
  ZoomReport result;
  const std::string folder = run + "/zoom";
  try {
    require_commands(options);
    options.zoom = target;
    options.stored = false;
    options.reference = options.rerun;
    options.golden = false;
    fs::remove_all(folder);
    const RunDirectory zoomed = RunDirectory::create(folder);
    course.prefix = "zoom: ";
    course.pass = 0;
    run_passes(options, zoomed, course);
    result = compare_operators(zoomed, course.judged_by, options.judging);
  } catch (const Error& error) {
    course.progress.clear();
    result.problem = error.message();
  }
  result.target = to_string(target);
  result.folder = folder;
  return result;
}

}  // namespace ttrace::cli
