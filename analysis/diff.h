// Compares a candidate's stored trace with the reference's.
//
// Sources: tiers and order of findings: docs/architecture.md; bounds: analysis/bounds/bounds.h.
#pragma once

#include "analysis/align/id_pattern.h"
#include "analysis/align/selection.h"
#include "analysis/bounds/allowance.h"
#include "analysis/bounds/calibration.h"
#include "analysis/bounds/tolerance.h"
#include "analysis/checks/operator_check.h"
#include "analysis/findings/report.h"
#include "analysis/findings/required.h"
#include "trace/file/trace_reader.h"
#include "trace/samples/align_samples.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

struct DiffOptions {
  int threads = 0;                       // 0: all cores. The report does not depend on it
  const ForcedTraces* forced = nullptr;  // null: no operator is checked on its own
  // Sentences about how the traces came about; the report begins with them.
  std::vector<std::string> remarks = {};
  std::vector<UnseenPart> not_seen = {};        // what the traces themselves do not say
  Required required = {};                       // must have been seen
  const Trace* golden = nullptr;                // null: no tensor is compared with FP64
  std::optional<Calibration> calibration = {};  // its limits stand in for the shipped ones
  // Called after each tensor from the working threads, one call at a time.
  std::function<void(std::size_t done, std::size_t total)> progress;
  const SampleAlignment* samples = nullptr;  // by which the candidate was placed; null: it was not
  Selection selection = {};       // --ranks means the candidate's; bounds come from all tensors
  Allowances allowances = {};     // rows of the ledger of limits that are in force
  ToleranceRules tolerance = {};  // stands in for the bound of the tensors it speaks of
  // Findings whose id one of these is found in are listed as allowed and decide nothing.
  std::vector<IdPattern> allow_missing = {};
  std::vector<IdPattern> allow_failed = {};
  // Above 0: checks and excuses are asked for in an order that follows from this. The report does
  // not depend on it.
  std::uint64_t shuffle = 0;
};

// The report holds everything that is wrong with the candidate. Throws UsageError or FormatError if
// no comparison is possible: different `model` or `data`, different steps, no common tensor, a
// reference whose own ranks contradict each other, damaged files, or a calibration for another
// precision. In steps that were interrupted (Trace::open_partial), missing tensors are not
// findings.
[[nodiscard]] Report diff(const Trace& reference,
                          const Trace& candidate,
                          const DiffOptions& options = {});

}  // namespace ttrace
