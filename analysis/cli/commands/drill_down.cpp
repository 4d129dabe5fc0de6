#include "analysis/cli/commands/drill_down.h"

#include "analysis/cli/options/stored_pair.h"
#include "analysis/findings/wording.h"
#include "analysis/same.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <utility>

namespace ttrace::cli {
namespace {

// What the sketches found, and whether the second run of the candidate is the first one again.
std::string remark_of(const Report& sketched, const Sameness& runs) {
  const TensorId& first = sketched.tensors[*sketched.first_divergence].id;
  const std::string found = fmt::format(
      "sketches found a divergence, first at {}, so both programs ran again with all "
      "elements kept",
      to_string(first));
  return runs.same() ? found + "; the candidate repeated itself in every bit"
                     : fmt::format(
                           "{}; the candidate did not repeat itself: {} of {} differ "
                           "between its two runs, so what the first one did wrong may not "
                           "show here",
                           found,
                           runs.unequal.size(),
                           counted(runs.records, "record"));
}

}  // namespace

CheckOptions first_passes(CheckOptions options) {
  if (options.keep == Keep::kSketch) {
    options.forced = false;
  }
  return options;
}

DrilledDown drill_down(CheckOptions options,
                       const RunDirectory& run,
                       Report sketched,
                       Course& course) {
  const bool is_stored = options.stored && Trace::open(options.reference).keeps_elements();
  if (options.rerun.empty() && !is_stored) {
    sketched.remarks.push_back(
        "sketches say that something is beyond its bound; operators and causes need elements, but "
        "the stored reference has none and cannot run again; pass --rerun COMMAND");
    return {std::move(sketched), run.path()};
  }
  options.keep = Keep::kBytes;
  if (!is_stored) {
    options.stored = false;
    options.reference = options.rerun;
  }
  try {
    const RunDirectory bytes = RunDirectory::create(run.path() + "/bytes");
    course.prefix = "with elements: ";
    course.pass = 0;
    run_passes(options, bytes, course);
    const Sameness runs =
        compare_runs(Trace::open(run.candidate()), Trace::open(bytes.candidate()));
    options.judging.remarks.push_back(remark_of(sketched, runs));
    return {judge({course.judged_by, bytes.candidate(), bytes.path()},
                  options.judging,
                  Completeness::kWhole),
            bytes.path()};
  } catch (const Error& error) {
    course.progress.clear();
    sketched.remarks.push_back(fmt::format(
        "sketches say that something is beyond its bound, but the programs could not run again "
        "with all elements kept, so operators and causes are not known: {}",
        error.message()));
    return {std::move(sketched), run.path()};
  }
}

}  // namespace ttrace::cli
