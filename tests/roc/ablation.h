// What every row of the ledger of limits costs and buys: clean runs are judged once with all rows
// and once without each.
//
// A run is judged in up to three ways: as `ttrace check` does, without its forced passes (as
// --no-forced does), and without noise as well, where class defaults decide. A row is switched off
// where it can act.
//
// Thread-safety: free functions; runs are made on several threads and judged on one at a time.
#pragma once

#include "analysis/bounds/ledger.h"
#include "analysis/findings/report.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace ttrace::roc {

// What a row did in the runs that were judged.
struct RowEffect {
  std::vector<std::string> alarms;  // runs that raise an alarm without it
  std::set<std::string> runs;       // in which it acts on any tensor
  std::size_t tensors = 0;          // that it acts on, over all runs and ways to judge them
  std::size_t exempt = 0;  // of them, those that pass nothing without it: equal, or not judged with
  std::vector<double> growth;  // of the bounds of the others: with it over without it

  // 1 where there is none.
  [[nodiscard]] double median_growth() const;
  [[nodiscard]] double largest_growth() const;
};
using RowEffects = std::map<Allowance, RowEffect>;

// Adds what `without`, judged without a row, says otherwise than `with`. `run` names the run.
void add_effect(const Report& with,
                const Report& without,
                const std::string& run,
                RowEffect& effect);

struct Ablation {
  RowEffects effects;
  std::vector<std::string> runs;      // judged
  std::set<std::string> alarms;       // runs that raise one with all rows, in any way to judge them
  std::vector<std::string> problems;  // runs without a verdict
  double seconds = 0.0;
};

struct AblationOptions {
  std::string bin;        // folder of ttrace, ttrace_reference and megatron_mini
  std::string run_ranks;  // script that starts ranks
  std::string base;       // configuration that cases change
  std::string work;       // existing folder for traces
  bool keep = false;      // runs stay there, and those of an earlier call are judged again
  int jobs = 1;
  int timeout_s = 120;                   // that a pass may take
  std::vector<std::string> stored = {};  // folders of checks that are judged as they are
  std::vector<std::string> rows = {};    // names of the rows to switch off; empty: all
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

// Texts of cases (tests/fuzz_layouts/case.h): those that were measured when a row was added, then
// `count` random ones in each of BF16, F32 and FP8.
[[nodiscard]] std::vector<std::string> ablation_cases(int count, std::uint64_t seed);

// Each run is removed once it is judged, unless it is kept. Throws UsageError for a row that there
// is not.
[[nodiscard]] Ablation ablate(const std::vector<std::string>& cases,
                              const AblationOptions& options);

[[nodiscard]] nlohmann::ordered_json json_of(const Ablation& ablation, const std::string& command);

}  // namespace ttrace::roc
