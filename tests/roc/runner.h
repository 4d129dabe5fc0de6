// Runs a plan: trained weights, references with their noise, clean candidates, and mutants.
//
// Thread-safety: one call at a time.
#pragma once

#include "roc/plan.h"
#include "roc/search.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace::roc {

struct RunOptions {
  std::string bin;        // folder of ttrace, ttrace_reference and megatron_mini
  std::string run_ranks;  // script that starts ranks
  std::string base;       // configuration that the plan changes
  std::string work;       // existing folder for configurations and traces
  int jobs = 1;           // checks at the same time
  int timeout_s = 120;    // that a pass may take
  bool keep = false;      // traces and logs stay
  // Called before each search and each clean run, one call at a time.
  std::function<void(std::size_t done, std::size_t total, const std::string& what)> progress;
};

// Detection at one magnitude, over the batches that were run.
struct Point {
  double magnitude = 0.0;
  int runs = 0;
  int changed = 0;                          // of them, those that the mutant changed a bit of
  std::map<std::string, int> flagged = {};  // by detector
};

struct SeriesOutcome {
  std::map<std::string, std::optional<double>> smallest;  // by detector: found in all batches
  std::vector<Point> points;                              // ascending, those that were run
  std::vector<std::string> problems;                      // runs without a verdict
};

struct Outcomes {
  std::vector<Observation> cleans;    // by clean run
  std::vector<SeriesOutcome> series;  // by series
  int runs = 0;                       // of mutants
  double seconds = 0.0;               // wall time of all
};

[[nodiscard]] Outcomes run_plan(const Plan& plan, const RunOptions& options);

// The result of a finished search.
[[nodiscard]] SeriesOutcome outcome_of(Search& search, const std::vector<double>& magnitudes);

}  // namespace ttrace::roc
