// ttrace_roc: how small an error is found, by tiers of TTrace and by the rules of today.
#include "analysis/cli/run/progress.h"
#include "roc/ablation.h"
#include "roc/figures.h"
#include "roc/ledger_page.h"
#include "roc/page.h"
#include "roc/plan.h"
#include "roc/runner.h"
#include "support/experiment_output.h"
#include "support/temporary_directory.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::roc {
namespace {

constexpr int kGoalsMissed = 1;

struct Options {
  Choice choice;
  bool full = false;  // asked for by name
  std::string json;   // files; empty: none
  std::string page;
  std::string plot;
  RunOptions run;
  bool ablate = false;
  int cases = 0;  // random ones of each precision
  std::uint64_t seed = 0;
  std::vector<std::string> stored;
  std::vector<std::string> rows;
};

po::options_description description(Options& options, std::string& keys) {
  po::options_description result("Options");
  auto add = result.add_options();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  add("quick",
      po::bool_switch(&options.choice.quick),
      "run few keys, one layer and one batch, slightly above today's bounds");
  add("full", po::bool_switch(&options.full), "run all keys (the default)");
  add("keys",
      po::value(&keys)->value_name("REGEX"),
      "run only keys whose name contains a match of REGEX");
  add("seeds",
      po::value(&options.choice.seeds)->value_name("N")->default_value(4),
      "number of batches; a mutant counts as found if it is found in all of them");
  add("ablate",
      po::bool_switch(&options.ablate),
      "judge clean runs without each row of the ledger of limits, instead of measuring mutants");
  add("cases",
      po::value(&options.cases)->value_name("N")->default_value(20),
      "with --ablate: number of random clean runs in each of BF16, F32 and FP8, in addition to "
      "those that were measured before");
  add("seed",
      po::value(&options.seed)->value_name("SEED")->default_value(9301),
      "with --ablate: seed of the random runs");
  add("on",
      po::value(&options.stored)->value_name("DIR"),
      "with --ablate: judge this folder of `ttrace check` instead of making runs; repeatable");
  add("row",
      po::value(&options.rows)->value_name("NAME"),
      "with --ablate: measure only this row of the ledger; repeatable");
  add("json", po::value(&options.json)->value_name("FILE"), "write all figures to FILE");
  add("page", po::value(&options.page)->value_name("FILE"), "write the page for readers to FILE");
  add("plot", po::value(&options.plot)->value_name("FILE"), "write the plot (SVG) to FILE");
  add("jobs",
      po::value(&options.run.jobs)->value_name("N")->default_value(cores, "one per core"),
      "number of checks that run at the same time");
  add("timeout",
      po::value(&options.run.timeout_s)->value_name("S")->default_value(120),
      "longest time of one pass, in seconds");
  add("work",
      po::value(&options.run.work)->value_name("DIR"),
      "keep traces and logs in DIR; --ablate judges the runs that it finds there again");
  add("help", "print this text");
  return result;
}

int ablate_rows(const Options& asked, const std::string& command) {
  const testing::TemporaryDirectory temporary;
  const bool keep = !asked.run.work.empty();
  if (keep) {
    fs::create_directories(asked.run.work);
  }
  cli::ProgressLine line;
  AblationOptions options{.bin = TTRACE_BIN,
                          .run_ranks = TTRACE_SOURCE "/examples/megatron_mini/run_ranks",
                          .base = TTRACE_SOURCE "/examples/tiny.yaml",
                          .work = keep ? fs::absolute(asked.run.work).string() : temporary.path(),
                          .jobs = asked.run.jobs,
                          .timeout_s = asked.run.timeout_s,
                          .stored = asked.stored,
                          .rows = asked.rows};
  options.progress = [&line](std::size_t done, std::size_t total) {
    line.show("[" + std::to_string(done + 1) + "/" + std::to_string(total) + "]");
  };
  const std::vector<std::string> cases =
      asked.stored.empty() ? ablation_cases(asked.cases, asked.seed) : std::vector<std::string>();
  const Ablation ablation = ablate(cases, options);
  line.clear();
  testing::write_if_asked(asked.json, json_of(ablation, command).dump(1) + "\n");
  testing::write_if_asked(asked.page, ledger_page(ablation, command));
  testing::write_if_asked(asked.plot, ablation.shares.plot());
  if (asked.page.empty()) {
    std::cout << ledger_page(ablation, command);
  }
  for (const std::string& problem : ablation.problems) {
    std::cerr << "no verdict: " << problem << '\n';
  }
  bool all_needed = true;
  for (const Allowance row : ablation.together) {
    if (asked.rows.empty() && !has_case_of_its_own(row_of(row))) {
      all_needed = false;
      std::cerr << "no run needs the row " << row_of(row).name
                << ": take it out, or name the case that it was measured in\n";
    }
  }
  return all_needed && ablation.problems.empty() ? 0 : kGoalsMissed;
}

int measure(const Options& asked, const std::string& command) {
  TTRACE_CHECK(!asked.full || (!asked.choice.quick && !asked.choice.keys),
               UsageError,
               "--full cannot be combined with --quick or --keys; leave one of them out");
  const Plan plan = make_plan(asked.choice);
  const testing::TemporaryDirectory temporary;
  cli::ProgressLine line;
  RunOptions options = asked.run;
  options.bin = TTRACE_BIN;
  options.run_ranks = TTRACE_SOURCE "/examples/megatron_mini/run_ranks";
  options.base = TTRACE_SOURCE "/examples/tiny.yaml";
  options.keep = !options.work.empty();
  if (options.keep) {
    fs::create_directories(options.work);
    options.work = fs::absolute(options.work).string();
  } else {
    options.work = temporary.path();
  }
  options.progress = [&line](std::size_t done, std::size_t total, const std::string& what) {
    line.show("[" + std::to_string(done + 1) + "/" + std::to_string(total) + "] " + what);
  };
  const Outcomes outcomes = run_plan(plan, options);
  line.clear();
  const std::string picture = asked.plot.empty() ? "" : fs::path(asked.plot).filename().string();
  testing::write_if_asked(asked.json, json_of(plan, outcomes, command).dump(1) + "\n");
  testing::write_if_asked(asked.plot, plot_of(plan, outcomes));
  testing::write_if_asked(asked.page, page_of(plan, outcomes, command, picture));
  if (asked.page.empty()) {
    std::cout << page_of(plan, outcomes, command, picture) << '\n';
  }
  std::cout << summary_of(plan, outcomes);
  return goals_are_met(plan, outcomes) ? 0 : kGoalsMissed;
}

int run(int argc, char** argv) {
  Options options;
  std::string keys;
  const po::options_description known = description(options, keys);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(known).positional({}).run(), values);
  po::notify(values);
  if (values.contains("help")) {
    std::cout << "usage: ttrace_roc [options]\n\n"
              << known
              << "\nExit codes:\n  0  every run has a verdict, at most 1 % of the clean runs raise "
                 "an alarm, and every key meets\n     its goal (with --quick: today's figure)\n  1 "
                 " otherwise\n  2  bad usage\n";
    return 0;
  }
  if (values.contains("keys")) {
    options.choice.keys = keys;
  }
  TTRACE_CHECK(options.run.jobs >= 1 && options.run.timeout_s >= 1 && options.cases >= 0,
               UsageError,
               "--jobs and --timeout must be at least 1, --cases at least 0");
  const std::string command = testing::command_text("roc", argc, argv);
  return options.ablate ? ablate_rows(options, command) : measure(options, command);
}

}  // namespace
}  // namespace ttrace::roc

int main(int argc, char** argv) {
  try {
    return ttrace::roc::run(argc, argv);
  } catch (const ttrace::Error& error) {
    std::cerr << "ttrace_roc: " << error.message() << '\n';
  } catch (const po::error& error) {
    std::cerr << "ttrace_roc: " << error.what() << "; see --help\n";
  } catch (const std::exception& error) {
    std::cerr << "ttrace_roc: " << error.what() << '\n';
  }
  return 2;
}
