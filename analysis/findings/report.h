// The result of comparing two traces.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/findings/close_look.h"
#include "analysis/findings/not_seen.h"
#include "analysis/findings/unmatched_name.h"
#include "analysis/findings/verdict.h"
#include "analysis/findings/zoom_report.h"
#include "trace/file/code_lines.h"
#include "trace/file/manifest.h"

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// One of the two traces.
struct Side {
  std::string directory;
  Manifest manifest;
  std::optional<ElementType> computes_in = {};  // most activations; nothing: none was recorded
};

// Allowed tensors are counted as such only.
struct Counts {
  std::size_t tensors = 0;
  std::size_t within_bound = 0;
  std::size_t out_of_bound = 0;
  std::size_t missing_in_candidate = 0;
  std::size_t missing_in_reference = 0;
  std::size_t allowed_failed = 0;
  std::size_t allowed_missing = 0;
  std::size_t incomplete = 0;
  std::size_t behind_flip = 0;
  std::size_t bounds_from_noise = 0;
  std::size_t bounds_exact = 0;
  std::size_t bounds_class_default = 0;
  std::size_t bounds_asked = 0;
  std::size_t operators = 0;            // tensors whose own operators were checked, with a bound
  std::size_t operators_unbounded = 0;  // those that any error would have passed
  std::size_t operators_wrong = 0;
  std::size_t inherited = 0;  // beyond what noise explains, with operators that are right
  std::size_t golden = 0;     // tensors that were compared with the golden pass
  std::size_t too_accurate = 0;
  std::size_t too_coarse = 0;
  std::size_t must_be_equal = 0;  // with dyadic inputs
  std::size_t rounded = 0;        // not judged there, because the reference rounds
  std::size_t judged = 0;         // tensors whose status says how they stand to their bounds
  std::size_t not_judged = 0;
};

// Inputs of modules that are, in the reference, what another module returned; see edge_check.h.
struct EdgeCoverage {
  std::size_t edges = 0;
  std::size_t checked = 0;  // of them, those that were found in the candidate
};

// How far noise passes reached; see coverage.h.
struct NoiseCoverage {
  std::size_t tensors = 0;  // of the reference, that could be moved
  std::size_t reached = 0;  // of them, those that a pass moved
  // Those that none moved although they may be rounded, because code that the observer does not see
  // made them. They have class defaults. The others must be equal.
  std::vector<std::pair<Kind, std::size_t>> untouched;

  [[nodiscard]] std::size_t untouched_tensors() const;
};

// Choices of experts over all routers. `bound` and `largest_move` are those of the choice nearest
// to its bound, or farthest beyond it.
struct RoutingTotals {
  std::int64_t tokens = 0;
  std::int64_t flips = 0;    // tokens that go to other experts than in the reference
  std::int64_t illegal = 0;  // those that round-off does not explain
  double largest_move = 0.0;
  double bound = 0.0;
};

// The report's statement about calibrated limits; see calibration.h.
struct CalibrationUse {
  std::size_t runs = 0;
  double rate = 0.0;        // of runs that alarm falsely, as stated
  double rate_bound = 0.0;  // the same as far as the runs alone show it, with 95 % confidence
  std::vector<std::string> shipped = {};  // limits used here that its runs said nothing about
  bool vouched = false;            // the user says that all its runs are right, alarms or not
  std::size_t alarms_shipped = 0;  // of its runs, those that raise an alarm under shipped limits
  std::size_t alarms = 0;          // and under these
};

// Lines of the program that a finding concerns, as far as the candidate's trace says.
struct SourceLines {
  std::string sentence;            // "model.py:88 (Attention), called at model.py:120", or empty
  std::optional<CodePlace> place;  // the first line in it
};

// A finding with a cause of its own; see roots.h.
struct Root {
  std::size_t tensor = 0;                   // index into Report::tensors
  std::optional<Diagnosis> diagnosis = {};  // where a signature explains it
  SourceLines source = {};
};

struct Report {
  Side reference;
  Side candidate;
  int noise_passes = 0;
  bool has_residuals = false;  // forced passes were there
  bool has_golden = false;     // a golden pass was there
  bool is_dyadic = false;      // of made-up inputs: only what no operator rounds is judged
  EdgeCoverage edges;
  std::optional<NoiseCoverage> noise_coverage;  // absent without noise of the same precision
  std::optional<CalibrationUse> calibration;    // absent: all limits are the shipped ones
  std::vector<std::string> remarks;             // what differs without forbidding the comparison
  std::vector<std::string> broken_off;          // passes of the check without a complete trace
  std::vector<std::string> inferred;   // where tensors lie of which nobody said it, by class
  std::vector<std::string> notes;      // what the programs themselves noted, by side, rank and step
  std::vector<UnseenPart> not_seen;    // what the verdict does not cover
  std::vector<std::string> unmet;      // what --require asks for and nobody saw
  std::string other_data;              // why nothing can be judged; empty: the data are the same
  std::size_t not_finite = 0;          // tensors that are NaN or Inf throughout on both sides
  std::vector<TensorVerdict> tensors;  // all selected, in the reference's execution order
  std::size_t left_out = 0;            // by the selection
  std::vector<std::string> warnings;   // options that applied to nothing
  // Names of missing tensors that are not allowed, where both sides have some or one was renamed.
  std::vector<UnmatchedName> unmatched;
  // What is missing in the interrupted steps of either side. Anything here makes the verdict a
  // partial one.
  std::vector<std::string> lacking;
  std::optional<std::size_t> first_divergence;  // index into `tensors`
  std::optional<Diagnosis> diagnosis;           // of the first divergence, where one explains it
  std::string where_to_look;                    // for the first divergence
  SourceLines source;                           // of the first divergence
  std::optional<CloseLook> close_look;          // at the first divergence, if both sides have it
  std::vector<Root> further_roots;              // behind the first divergence, in order
  std::size_t roots_left_out = 0;               // behind them
  std::optional<ZoomReport> zoom;               // what --zoom found inside of a module

  [[nodiscard]] bool diverged() const { return first_divergence.has_value(); }
  // The reference reused the candidate's choices of experts.
  [[nodiscard]] bool follows_candidate() const {
    return !reference.manifest.forced_routing.empty();
  }
  [[nodiscard]] bool partial() const { return !lacking.empty(); }
  // Why a run in which nothing diverged was not judged: its data, none of its tensors or none of
  // its forward, or what the user requires. Empty where it was.
  [[nodiscard]] std::string why_not_judged() const;
  // Nothing diverged, but a tensor differs behind a flip, so the verdict is unknown.
  [[nodiscard]] bool undecided() const;
  [[nodiscard]] Counts counts() const;
  // The first divergence and the further roots, in order.
  [[nodiscard]] std::vector<Root> roots() const;
  // That of a tensor, which explains nothing of one that is no root.
  [[nodiscard]] Root root(std::size_t tensor) const;
  // Returns nothing if no choices of experts were recorded.
  [[nodiscard]] std::optional<RoutingTotals> flips() const;
};

}  // namespace ttrace
