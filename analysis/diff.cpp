#include "analysis/diff.h"

#include "analysis/bounds.h"
#include "analysis/compatibility.h"
#include "analysis/diagnosis/diagnosis.h"
#include "analysis/diagnosis/evidence.h"
#include "analysis/matching.h"
#include "analysis/noise.h"
#include "analysis/parallel.h"
#include "analysis/verdict.h"
#include "analysis/where_to_look.h"

#include <ttrace/error.h>
#include <ttrace/noise_table.h>

#include <algorithm>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

ElementType precision_of(const Trace& trace) {
  try {
    return parse_element_type(trace.manifest().precision);
  } catch (const FormatError&) {
    TTRACE_THROW(UsageError,
                 trace.directory(),
                 ": precision `",
                 trace.manifest().precision,
                 "` is none of f64, f32, bf16, f16; correct it in the manifest");
  }
}

void require_common_id(const std::vector<Match>& matches, const Trace& r, const Trace& c) {
  const bool common = std::any_of(matches.begin(), matches.end(), [](const Match& match) {
    return !match.reference.empty() && !match.candidate.empty();
  });
  if (common) {
    return;
  }
  std::string in_reference = "nothing";
  std::string in_candidate = "nothing";
  for (const Match& match : matches) {
    (match.candidate.empty() ? in_reference : in_candidate) = to_string(match.id);
  }
  TTRACE_THROW(UsageError,
               "no tensor is in both traces; ",
               r.directory(),
               " holds for example ",
               in_reference,
               ", ",
               c.directory(),
               " ",
               in_candidate,
               "; give modules the same canonical paths on both sides");
}

void collect_notes(const std::string& side, const Trace& trace, std::vector<std::string>& notes) {
  for (const StepTrace& step : trace.steps()) {
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      for (const std::string& note : step.ranks[rank].notes()) {
        std::ostringstream line;
        line << side << ", rank " << rank << ", step " << step.step << ": " << note;
        notes.push_back(line.str());
      }
    }
  }
}

std::vector<TensorVerdict> judge_all(const Judge& judge,
                                     std::size_t count,
                                     const DiffOptions& options) {
  std::vector<TensorVerdict> verdicts(count);
  std::mutex mutex;  // guards done and the callback
  std::size_t done = 0;
  parallel_for(count, options.threads, [&](std::size_t index) {
    verdicts[index] = judge.judge(index);
    if (options.progress) {
      const std::lock_guard lock(mutex);
      options.progress(++done, count);
    }
  });
  return verdicts;
}

}  // namespace

Report diff(const Trace& reference, const Trace& candidate, const DiffOptions& options) {
  Report report;
  report.reference = {reference.directory(), reference.manifest()};
  report.candidate = {candidate.directory(), candidate.manifest()};
  report.remarks = check_comparable(reference, candidate);
  collect_notes("reference", reference, report.notes);
  collect_notes("candidate", candidate, report.notes);

  const std::vector<Match> matches = match(reference, candidate);
  require_common_id(matches, reference, candidate);
  const NoiseModel noise(read_noise(reference.directory()), matches);
  report.noise_passes = noise.passes();
  const bool same_precision = reference.manifest().precision == candidate.manifest().precision;
  const ElementType precision = coarser(precision_of(reference), precision_of(candidate));
  const Bounds bounds(noise, precision, same_precision);
  report.tensors = judge_all(Judge(matches, bounds, same_precision), matches.size(), options);

  const auto first =
      std::find_if(report.tensors.begin(), report.tensors.end(), [](const TensorVerdict& tensor) {
        return tensor.status != Status::kWithin;
      });
  if (first != report.tensors.end()) {
    report.first_divergence = static_cast<std::size_t>(first - report.tensors.begin());
    report.diagnosis = diagnose(Evidence(matches, *first, candidate));
    report.where_to_look = where_to_look(report.tensors, *report.first_divergence, candidate);
  }
  return report;
}

}  // namespace ttrace
