#include "support/trace_digests.h"

namespace ttrace::testing {

Digests digests_of(const Trace& trace) {
  Digests digests;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Record& record : file.records()) {
        digests[{file.layout().rank, record.id}] = record.digest;
      }
    }
  }
  return digests;
}

}  // namespace ttrace::testing
