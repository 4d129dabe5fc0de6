// Clean runs of random models in random layouts: none may raise an alarm.
#include "analysis/cli/run/progress.h"
#include "fuzz_layouts/generate.h"
#include "fuzz_layouts/judge.h"
#include "fuzz_layouts/shrink.h"
#include "support/clopper_pearson.h"
#include "support/task_list.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::fuzz_layouts {
namespace {

constexpr int kFailures = 1;
constexpr double kAllowedAlarms = 0.01;  // of clean runs where rounding is part of the question

struct Options {
  int count = 0;
  std::uint64_t seed = 0;
  std::string precision;
  bool layer_dp = false;
  std::string only;  // text of one case
  bool list = false;
  bool keep = false;
  std::string keep_clean;  // folder for the checks of clean runs; empty: they are removed
  int tries = 0;           // checks that shrinking a failure may take
  int jobs = 1;
  JudgeOptions judging;
};

struct Failure {
  Case layout;
  CaseResult result;
};

class WorkFolder {
 public:
  explicit WorkFolder(std::string pattern) {
    TTRACE_CHECK(mkdtemp(pattern.data()) != nullptr, UsageError, "cannot create ", pattern);
    path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove(path_, ignored);  // only where nothing was kept in it
  }
  WorkFolder(const WorkFolder&) = delete;  // owns the folder
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string describe(const Failure& failure) {
  return std::string(name_of(failure.result.judgement)) + ": " + failure.result.detail + "\n  " +
         text_of(failure.layout);
}

// Runs one case; its folder stays where it failed and `keep` is asked for. `clean`: where the check
// of a clean run goes; empty: it is removed.
CaseResult run_case(const Case& layout,
                    const std::string& folder,
                    const std::string& clean,
                    const Options& options) {
  CaseResult result = judge(layout, folder, options.judging);
  if (result.judgement == Judgement::kClean && !clean.empty()) {
    fs::rename(folder + "/check", clean);
  }
  if (result.judgement == Judgement::kClean || !options.keep) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  return result;
}

struct Run {
  std::vector<CaseResult> results;
  std::vector<Failure> failures;  // in the order of the cases
};

Run run_all(const std::vector<Case>& cases, const std::string& work, const Options& options) {
  cli::ProgressLine line;
  Run run;
  run.results.resize(cases.size());
  std::mutex mutex;  // guards the terminal and the counts
  std::size_t done = 0;
  int failed = 0;
  std::vector<testing::Task> tasks;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    tasks.push_back({[&, i] {
      const std::string number = "/" + std::to_string(i);
      CaseResult result = run_case(cases[i],
                                   work + number,
                                   options.keep_clean.empty() ? "" : options.keep_clean + number,
                                   options);
      const std::lock_guard lock(mutex);
      if (result.judgement != Judgement::kClean) {
        line.clear();
        std::cout << "case " << i << ", " << describe({cases[i], result}) << std::endl;
        ++failed;
      }
      line.show("[" + std::to_string(++done) + "/" + std::to_string(cases.size()) + "] " +
                std::to_string(failed) + " not clean");
      run.results[i] = std::move(result);
    }});
  }
  testing::run_tasks(tasks, options.jobs);
  line.clear();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (run.results[i].judgement != Judgement::kClean) {
      run.failures.push_back({cases[i], run.results[i]});
    }
  }
  return run;
}

// The same kind of failure in as simple a case as can be.
void print_shrunk(const Failure& failure, const std::string& work, const Options& options) {
  cli::ProgressLine line;
  int tried = 0;
  CaseResult last = failure.result;
  const auto fails = [&](const Case& layout) {
    line.show("shrinking, try " + std::to_string(++tried) + ": " + text_of(layout));
    CaseResult result = run_case(layout, work + "/shrink-" + std::to_string(tried), "", options);
    const bool same = result.judgement == failure.result.judgement;
    last = same ? std::move(result) : last;
    return same;
  };
  const Case smallest = shrink(failure.layout, fails, options.tries);
  line.clear();
  std::cout << "shrunk in " << tried << " tries to " << describe({smallest, last})
            << "\n  ./dev fuzz-layouts --case '" << text_of(smallest) << "'" << std::endl;
}

void print_coverage(const std::vector<Case>& cases) {
  std::cout << "covered:";
  const char* separator = " ";
  for (const Feature& feature : features()) {
    if (std::any_of(cases.begin(), cases.end(), [&](const Case& layout) {
          return feature.can_be_on(layout.precision);
        })) {
      const auto count = std::count_if(cases.begin(), cases.end(), feature.on);
      std::cout << separator << feature.name << " " << count;
      separator = ", ";
    }
  }
  std::cout << "\n";
}

void print_parts(const Run& run, bool golden) {
  PartsByKind all;
  for (const CaseResult& result : run.results) {
    for (const auto& [kind, parts] : result.parts) {
      all[kind].slice = std::max(all[kind].slice, parts.slice);
      all[kind].group = std::max(all[kind].group, parts.group);
      all[kind].factor = std::max(all[kind].factor, parts.factor);
      add_rho(parts, all[kind]);
    }
  }
  std::cout << "largest error over bound of a slice, a group of slices and a factor:";
  for (const char* separator = " "; const auto& [kind, parts] : all) {
    std::cout << separator << kind << " " << std::setprecision(2) << parts.slice << " "
              << parts.group << " " << parts.factor;
    separator = ", ";
  }
  std::cout << "\n";
  if (golden) {
    std::cout << "smallest and largest rho:";
    for (const char* separator = " "; const auto& [kind, parts] : all) {
      std::cout << separator << kind << " " << parts.least_rho << " " << parts.largest_rho;
      separator = ", ";
    }
    std::cout << "\n";
  }
}

int print_summary(const std::vector<Case>& cases, const Run& run, const Options& options) {
  print_coverage(cases);
  print_parts(run, options.judging.golden);
  double largest = 0.0;
  double seconds = 0.0;
  int alarms = 0;
  int no_verdict = 0;
  for (const CaseResult& result : run.results) {
    largest = std::max(largest, result.distance);
    seconds += result.seconds;
    alarms += result.judgement == Judgement::kFinding ? 1 : 0;
    no_verdict += result.judgement == Judgement::kNoVerdict ? 1 : 0;
  }
  const int judged = static_cast<int>(cases.size()) - no_verdict;
  std::cout << judged << " clean runs judged, " << alarms << " alarms, rate below "
            << std::setprecision(2) << 100.0 * testing::clopper_pearson_upper(alarms, judged)
            << " % (95 %); " << no_verdict << " without a verdict; " << std::setprecision(3)
            << seconds << " s of checks\n";
  if (options.precision == "f64") {
    std::cout << "largest error / max(norm, 1e-3 x largest norm of the kind): " << largest
              << ", allowed " << kFarInF64 << "\n";
    return run.failures.empty() ? 0 : kFailures;
  }
  return no_verdict == 0 && alarms <= kAllowedAlarms * judged ? 0 : kFailures;
}

// Numbers of an earlier run would be mixed with those of this one.
void make_empty_folder(const std::string& path) {
  TTRACE_CHECK(!fs::exists(path) || (fs::is_directory(path) && fs::is_empty(path)),
               UsageError,
               path,
               " is not empty; choose another folder for --keep-clean, or remove it");
  fs::create_directories(path);
}

int fuzz(const Options& options) {
  std::vector<Case> cases;
  if (!options.only.empty()) {
    cases.push_back(case_of(options.only));
    const std::string problem = why_impossible(cases.front());
    TTRACE_CHECK(problem.empty(), UsageError, "the case cannot exist: ", problem);
  }
  for (int i = 0; i < options.count; ++i) {
    cases.push_back(fuzz_layouts::generate(options.seed, i, options.precision, options.layer_dp));
  }
  if (options.list) {
    for (const Case& layout : cases) {
      std::cout << text_of(layout) << "\n";
    }
    print_coverage(cases);
    return 0;
  }
  // Lies within the folder that is kept, so that a check can be moved there; hidden from DIR/*.
  const std::string parent = options.keep_clean.empty()
                                 ? fs::temp_directory_path().string() + "/"
                                 : fs::absolute(options.keep_clean).string() + "/.";
  if (!options.keep_clean.empty()) {
    make_empty_folder(options.keep_clean);
  }
  const WorkFolder work(parent + "ttrace-layouts-XXXXXX");
  const Run run = run_all(cases, work.path(), options);
  for (std::size_t i = 0; i < run.failures.size() && options.tries > 0; ++i) {
    print_shrunk(run.failures[i], work.path(), options);
  }
  if (options.keep && !run.failures.empty()) {
    std::cout << "traces and logs of failures lie in " << work.path() << "\n";
  }
  return print_summary(cases, run, options);
}

po::options_description description(Options& options) {
  po::options_description result("Options");
  auto add = result.add_options();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  add("precision",
      po::value(&options.precision)->value_name("P")->default_value("f64"),
      "precision: f64 (every tensor must also be within 1e-10), f32 or bf16 (alarms are counted)");
  add("layer-dp",
      po::bool_switch(&options.layer_dp),
      "every case has layers that divide the ranks in a way of their own");
  add("case",
      po::value(&options.only)->value_name("TEXT"),
      "run only this case, as a failure prints it");
  add("list",
      po::bool_switch(&options.list),
      "print the cases and what they cover, but run nothing");
  add("keep", po::bool_switch(&options.keep), "keep traces and logs of failures");
  add("keep-clean",
      po::value(&options.keep_clean)->value_name("DIR"),
      "keep the checks of clean runs as DIR/NUMBER, for `ttrace calibrate DIR/*`");
  add("tries",
      po::value(&options.tries)->value_name("N")->default_value(60),
      "number of checks that may be spent on shrinking a failure (0: do not shrink)");
  add("noise",
      po::value(&options.judging.noise)->value_name("K")->default_value(5),
      "number of noise passes of each reference");
  add("timeout",
      po::value(&options.judging.timeout_s)->value_name("S")->default_value(120),
      "longest time of one pass, in seconds");
  add("golden",
      po::bool_switch(&options.judging.golden),
      "check against a golden pass instead of forced passes, and print the range of rho");
  add("jobs",
      po::value(&options.jobs)->value_name("N")->default_value(cores, "one per core"),
      "number of checks that run at the same time");
  add("count",
      po::value(&options.count)->value_name("N"),
      "number of cases (the first positional argument)");
  add("seed",
      po::value(&options.seed)->value_name("SEED"),
      "seed of the cases (the second positional argument)");
  add("help", "print this text");
  return result;
}

int run(int argc, char** argv) {
  Options options;
  const po::options_description known = description(options);
  po::positional_options_description positional;
  positional.add("count", 1).add("seed", 1);
  po::variables_map values;
  po::store(po::command_line_parser(argc, argv).options(known).positional(positional).run(),
            values);
  po::notify(values);
  if (values.contains("help")) {
    std::cout << "usage: ttrace_fuzz_layouts N SEED [options]\n\n"
              << known
              << "\nExit codes:\n  0  every run has a verdict, and no run fails (f64) or at most 1 "
                 "% raise an alarm (f32, bf16)\n  1  otherwise\n  2  bad usage\n";
    return 0;
  }
  TTRACE_CHECK((values.contains("count") && values.contains("seed")) != !options.only.empty(),
               UsageError,
               "pass either N SEED or --case TEXT; see --help");
  TTRACE_CHECK(options.count >= 0 && options.jobs >= 1 && options.judging.timeout_s >= 1 &&
                   options.judging.noise >= 0,
               UsageError,
               "N and --noise must not be negative, and --jobs and --timeout must be at least 1");
  options.judging.bin = TTRACE_BIN;
  options.judging.run_ranks = TTRACE_SOURCE "/examples/megatron_mini/run_ranks";
  options.judging.base = TTRACE_SOURCE "/examples/tiny.yaml";
  if (!options.only.empty()) {
    options.precision = case_of(options.only).precision;
  }
  return fuzz(options);
}

}  // namespace
}  // namespace ttrace::fuzz_layouts

int main(int argc, char** argv) {
  try {
    return ttrace::fuzz_layouts::run(argc, argv);
  } catch (const ttrace::Error& error) {
    std::cerr << "ttrace_fuzz_layouts: " << error.message() << '\n';
  } catch (const po::error& error) {
    std::cerr << "ttrace_fuzz_layouts: " << error.what() << "; see --help\n";
  } catch (const std::exception& error) {
    std::cerr << "ttrace_fuzz_layouts: " << error.what() << '\n';
  }
  return 2;
}
