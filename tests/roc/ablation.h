// What every row of the ledger of limits costs and buys: clean runs are judged once with all rows,
// once without each, and then without more and more of them.
//
// Rows cover for one another, so that taking them out one at a time shows too few that are needed,
// and too few that are not. Backward elimination takes out, in the order of how few tensors they
// act on, all rows that can go together without an alarm in any run.
//
// A run is judged in up to three ways: as `ttrace check` does, without its forced passes (as
// --no-forced does), and without noise as well, where class defaults decide. A row is switched off
// where it can act.
//
// Thread-safety: free functions; runs are made on several threads and judged on one at a time.
#pragma once

#include "analysis/bounds/ledger.h"
#include "analysis/findings/report.h"
#include "roc/shares.h"

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
  Shares shares;  // of runs as `ttrace check` judges them
  // The run that alarms without the row, alone or once `together` are gone.
  std::map<Allowance, std::string> needed;
  std::vector<Allowance> together;    // that go without an alarm in any run
  std::vector<std::string> runs;      // judged
  std::set<std::string> alarms;       // runs that raise one with all rows, in any way to judge them
  std::vector<std::string> problems;  // runs without a verdict
  double seconds = 0.0;
};

struct AblationOptions {
  std::string bin;        // folder of ttrace, ttrace_reference and megatron_mini
  std::string run_ranks;  // script that starts ranks
  std::string base;       // configuration that cases change
  std::string work;       // existing folder for traces; runs that it has are judged again
  int jobs = 1;
  int timeout_s = 120;                   // that a pass may take
  std::vector<std::string> stored = {};  // folders of checks that are judged as they are
  std::vector<std::string> rows = {};    // names of the rows to switch off; empty: all
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

// Texts of cases (tests/fuzz_layouts/case.h): those that were measured when a row was added, then
// `count` random ones in each of BF16, F32 and FP8.
[[nodiscard]] std::vector<std::string> ablation_cases(int count, std::uint64_t seed);

// Whether something else than clean runs of random layouts tells that the row is needed: the case
// that it was measured in.
[[nodiscard]] bool has_case_of_its_own(const LedgerRow& row);

// Throws UsageError for a row that there is not.
[[nodiscard]] Ablation ablate(const std::vector<std::string>& cases,
                              const AblationOptions& options);

[[nodiscard]] nlohmann::ordered_json json_of(const Ablation& ablation, const std::string& command);

}  // namespace ttrace::roc
