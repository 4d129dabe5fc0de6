#include "analysis/cli/commands/check_estimate.h"

#include "analysis/cli/commands/auto_attach.h"
#include "analysis/cli/commands/check_passes.h"
#include "analysis/cli/commands/pass_plan.h"
#include "analysis/cli/run/estimate.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/temporary_folder.h"
#include "trace/file/capture_counts.h"

#include <iostream>

namespace ttrace::cli {
namespace {

CaptureCounts count_reference(CheckOptions options) {
  if (options.stored) {
    return count_trace(options.reference);
  }
  const NoteInterrupts noted;
  TemporaryFolder folder("estimate");
  folder.keep(true);  // where the pass fails, it holds the log
  if (options.automatic) {
    attach_by_itself(options, folder.path() + "/auto");
  }
  Pass pass{.name = "counting reference",
            .command = options.reference,
            .variables = variables(options, "reference"),
            .trace = folder.path(),
            .log = folder.path() + "/reference.log",
            .complete = [path = folder.path()] { return counts_are_complete(path); },
            .remedy = ""};
  pass.variables["TTRACE_DIR"] = folder.path();
  pass.variables["TTRACE_COUNT"] = "1";
  Course course;
  course.passes = 1;
  follow(pass, options.limits, course);
  CaptureCounts all;
  for (const CaptureCounts& rank : read_counts(folder.path())) {
    all.start += rank.start;
    for (const auto& [step, kinds] : rank.steps) {
      for (const auto& [kind, count] : kinds) {
        all.steps[step][kind] += count;
      }
    }
  }
  folder.keep(false);
  return all;
}

}  // namespace

int run_estimate(const CheckOptions& options) {
  Estimate estimate;
  estimate.reference = count_reference(options);
  estimate.noise_passes = options.noise;
  estimate.stored = options.stored;
  const bool more = !options.rerun.empty() && options.precision != kGoldenPrecision;
  estimate.forced = options.forced && more;
  estimate.golden = options.golden && more;
  estimate.renamed = options.rename.has_value();
  estimate.output = options.output.empty() ? "runs" : options.output;
  estimate.free = free_bytes(estimate.output);
  print_estimate(std::cout, estimate);
  return estimate.needed() <= estimate.free ? 0 : 2;
}

}  // namespace ttrace::cli
