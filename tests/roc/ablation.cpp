#include "roc/ablation.h"

#include "analysis/diff.h"
#include "fuzz_layouts/case.h"
#include "fuzz_layouts/generate.h"
#include "support/check_run.h"
#include "support/derived_config.h"
#include "support/task_list.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

namespace fs = std::filesystem;

namespace ttrace::roc {
namespace {

using fuzz_layouts::Case;

// Clean runs that a row was added for, where random layouts seldom have what it takes.
constexpr const char* kMeasured[] = {
    // Micro-batches that err alike.
    "precision=bf16 tp=4 micro_batches=16 layers=2 heads=4",
    "precision=bf16 seed=2 tp=4 sp=1 micro_batches=16 layers=2 heads=4 masked=1",
    // Gradients in thirds, and scales that are powers of two.
    "precision=fp8 seed=108 masked=1 tied=1 recipe=3 cp=3 micro_batches=4 batch=4 sequence=36 "
    "vocabulary=271 ffn=36 heads=6 groups=2 head_size=16",
    "precision=f32 seed=659 recompute=2 attention_dropout=10 cp=3 layers=2 micro_batches=6 batch=2 "
    "swiglu=1 sequence=48 vocabulary=258 ffn=75 heads=4 groups=2 head_size=12",
    "precision=bf16 seed=3 dp=3 micro_batches=3 layers=2 batch=2",
    // What a second step inherits.
    "precision=f64 seed=557 zero1=1 dropout=10 masked=1 vpp=2 pp=2 dp=2 steps=2 layers=4 "
    "micro_batches=4 swiglu=1 sequence=20 vocabulary=288 ffn=36 heads=8",
    "precision=bf16 seed=4 dp=2 tp=2 sp=1 steps=2 layers=2 micro_batches=4 batch=2",
    "precision=fp8 seed=5 tp=2 sp=1 steps=2 layers=2 micro_batches=2 history=4",
    "precision=f32 seed=710 attention_dropout=10 packed=1 tied=1 sp=1 tp=8 steps=2 layers=3 "
    "micro_batches=4 batch=2 swiglu=1 sequence=64 vocabulary=271 ffn=128 heads=8 groups=2 "
    "head_size=12",
    // Ring attention over four ranks, packed documents.
    "precision=bf16 seed=6 cp=4 layers=2 heads=4 sequence=64 batch=2",
    "precision=bf16 seed=7 cp=4 layers=2 heads=4 sequence=64 batch=2 packed=1",
    "precision=bf16 seed=8 layers=2 heads=4 tp=2 sequence=64 batch=2 packed=1",
    // Experts.
    "precision=bf16 seed=9 ep=2 dp=2 experts=4 top_k=2 layers=2 micro_batches=2 batch=2",
};

// A way to judge a run.
struct View {
  std::string name;
  std::vector<AllowanceScope> scopes;  // of the rows that can act
  DiffOptions options;
  const Trace* reference = nullptr;
};

bool differ(const Check* left, const Check* right) {
  return left == nullptr || right == nullptr
             ? left != right
             : left->value != right->value || left->bound != right->bound ||
                   left->holds != right->holds;
}

// By how much larger an error passes `with` than `without`; Inf where none passes without, or the
// question is not asked with. Nothing where the numbers say nothing.
std::optional<double> growth_of(const Check* with, const Check& without) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  if (with == nullptr || !std::isfinite(with->bound)) {
    return kNone;
  }
  if (with->share() > 0.0 && without.share() > 0.0 && std::isfinite(with->share())) {
    return without.share() / with->share();
  }
  return without.bound > 0.0 && with->bound > 0.0 ? std::optional(with->bound / without.bound)
                                                  : std::nullopt;
}

// Largest growth over the questions of a tensor; nothing where the row does not act on it.
std::optional<double> effect_on(const TensorVerdict& with, const TensorVerdict& without) {
  std::optional<double> largest;
  const auto raise = [&](double growth) {
    largest = largest ? std::max(*largest, growth) : growth;
  };
  for (const Check& check : without.checks) {
    const Check* const before = with.find(check.question);
    if (differ(before, &check)) {
      raise(growth_of(before, check).value_or(1.0));
    }
  }
  if (with.checks.size() > without.checks.size()) {
    raise(1.0);
  }
  if (with.status() == without.status()) {
    return largest;
  }
  const bool was_excused = with.status() != Status::kWithin && with.status() != Status::kDiverged;
  if (was_excused && without.status() == Status::kDiverged) {
    raise(std::numeric_limits<double>::infinity());
  }
  return largest ? largest : std::optional(1.0);
}

// The passes of one finished check.
class StoredRun {
 public:
  StoredRun(const std::string& folder, const std::string& scratch)
      : reference_(Trace::open(reference_of(folder))),
        candidate_(Trace::open(folder + "/candidate")) {
    if (fs::exists(folder + "/forced-native/manifest.json")) {
      forced_.emplace(ForcedTraces{Trace::open(folder + "/forced-wide"),
                                   Trace::open(folder + "/forced-native")});
    }
    if (fs::exists(folder + "/golden/manifest.json")) {
      golden_.emplace(Trace::open(folder + "/golden"));
    }
    bare_.emplace(Trace::open(without_noise(reference_of(folder), scratch)));
  }

  [[nodiscard]] std::vector<View> views() const {
    using enum AllowanceScope;
    DiffOptions whole;
    whole.threads = 1;
    whole.forced = forced_ ? &*forced_ : nullptr;
    whole.golden = golden_ ? &*golden_ : nullptr;
    DiffOptions alone;
    alone.threads = 1;
    return {{"", {kNoise, kForced, kGolden, kAny}, whole, &reference_},
            {" --no-forced", {kNoise, kAny}, alone, &reference_},
            {" without noise", {kNoNoise, kAny}, alone, &*bare_}};
  }
  [[nodiscard]] const Trace& candidate() const { return candidate_; }

 private:
  static std::string reference_of(const std::string& folder) {
    const std::string rerouted = folder + "/rerouted";
    return fs::canonical(fs::exists(rerouted + "/manifest.json") ? rerouted : folder + "/reference")
        .string();
  }

  // A folder in `scratch` that links to all of a reference but its noise.
  static std::string without_noise(const std::string& reference, const std::string& scratch) {
    fs::remove_all(scratch);
    fs::create_directories(scratch);
    for (const auto& entry : fs::directory_iterator(reference)) {
      if (entry.path().filename() != "noise") {
        fs::create_symlink(entry.path(), fs::path(scratch) / entry.path().filename());
      }
    }
    return scratch;
  }

  Trace reference_;
  Trace candidate_;
  std::optional<ForcedTraces> forced_;
  std::optional<Trace> golden_;
  std::optional<Trace> bare_;
};

// All rows if none is named.
std::vector<Allowance> chosen_rows(const std::vector<std::string>& names) {
  std::vector<Allowance> rows;
  for (const std::string& name : names) {
    const auto found = find_allowance(name);
    TTRACE_CHECK(found.has_value(),
                 UsageError,
                 "--row names '",
                 name,
                 "', which is not a row of the ledger of limits; docs/figures/ledger.md lists "
                 "the rows");
    rows.push_back(*found);
  }
  if (rows.empty()) {
    std::ranges::transform(ledger(), std::back_inserter(rows), &LedgerRow::allowance);
  }
  return rows;
}

class AblationRunner {
 public:
  explicit AblationRunner(const AblationOptions& options)
      : options_(options), rows_(chosen_rows(options.rows)) {}

  Ablation run(const std::vector<std::string>& cases) {
    const auto start = std::chrono::steady_clock::now();
    const std::size_t total = cases.size() + options_.stored.size();
    std::vector<testing::Task> tasks;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      tasks.push_back({[this, &cases, i, total] { run_case(cases[i], i, total); }});
    }
    for (const std::string& folder : options_.stored) {
      tasks.push_back({[this, &folder, total] { judge(folder, folder, total); }});
    }
    testing::run_tasks(tasks, options_.jobs);
    eliminate();
    result_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  void run_case(const std::string& text, std::size_t number, std::size_t total) {
    const std::string folder = options_.work + "/" + std::to_string(number);
    std::string made;
    std::getline(std::ifstream(folder + "/case"), made);
    const std::string problem = made == text ? "" : make(text, folder);
    if (problem.empty()) {
      judge(folder + "/check", text, total);
    } else {
      const std::lock_guard lock(mutex_);
      result_.problems.push_back(text + ": " + problem);
      announce(total);
    }
  }

  // Why there is no verdict; else empty.
  [[nodiscard]] std::string make(const std::string& text, const std::string& folder) const {
    const Case layout = fuzz_layouts::case_of(text);
    fs::remove_all(folder);
    fs::create_directories(folder);
    const testing::TrainingRun training{.config = folder + "/config.yaml",
                                        .precision = layout.precision,
                                        .seed = layout.seed,
                                        .steps = layout.steps};
    testing::write_derived_config(options_.base, fuzz_layouts::changes_of(layout), training.config);
    const testing::CheckResult check = testing::run_check(
        {.program = options_.bin + "/ttrace",
         .reference = testing::reference_command(options_.bin, training),
         .candidate = testing::candidate_command(
             options_.bin, options_.run_ranks, training, fuzz_layouts::options_of(layout)),
         .folder = folder + "/check",
         .steps = layout.steps,
         .timeout_s = options_.timeout_s,
         .options = {"--golden"}});
    if (check.problem.empty()) {
      std::ofstream(folder + "/case") << text << '\n';
    }
    return check.problem;
  }

  // HDF5 bears one thread at a time.
  void judge(const std::string& folder, const std::string& run, std::size_t total) {
    const std::lock_guard lock(mutex_);
    announce(total);
    result_.runs.push_back(run);
    try {
      const StoredRun stored(folder, options_.work + "/without-noise");
      for (const View& view : stored.views()) {
        judge_view(stored, view, run);
      }
      folders_.emplace_back(folder, run);
    } catch (const Error& error) {
      result_.runs.pop_back();
      result_.problems.push_back(run + ": " + error.message());
    }
  }

  void judge_view(const StoredRun& stored, const View& view, const std::string& run) {
    const Report with = diff(*view.reference, stored.candidate(), view.options);
    if (with.diverged()) {
      result_.alarms.insert(run + view.name);
    }
    if (view.name.empty()) {
      result_.shares.add(with);
    }
    for (const Allowance row : rows_) {
      if (std::ranges::find(view.scopes, row_of(row).scope) == view.scopes.end()) {
        continue;
      }
      DiffOptions options = view.options;
      options.allowances.remove(row);
      add_effect(with,
                 diff(*view.reference, stored.candidate(), options),
                 run + view.name,
                 result_.effects[row]);
    }
  }

  // The first run, as it is judged, that raises an alarm without `removed`, and none with all rows.
  [[nodiscard]] std::optional<std::string> alarm_without(const Allowances& removed) const {
    for (const auto& [folder, run] : folders_) {
      const StoredRun stored(folder, options_.work + "/without-noise");
      for (const View& view : stored.views()) {
        DiffOptions options = view.options;
        options.allowances = removed;
        if (!result_.alarms.contains(run + view.name) &&
            diff(*view.reference, stored.candidate(), options).diverged()) {
          return run + view.name;
        }
      }
    }
    return std::nullopt;
  }

  void eliminate() {
    std::vector<Allowance> order = rows_;
    std::ranges::stable_sort(
        order, {}, [&](Allowance row) { return result_.effects[row].tensors; });
    Allowances removed;
    for (const Allowance row : order) {
      const std::vector<std::string>& alone = result_.effects[row].alarms;
      Allowances also = removed;
      also.remove(row);
      const auto alarm = alone.empty() ? alarm_without(also) : std::optional(alone.front());
      if (alarm) {
        result_.needed.emplace(row, *alarm);
      } else {
        result_.together.push_back(row);
        removed = also;
      }
    }
  }

  void announce(std::size_t total) {
    if (options_.progress) {
      options_.progress(started_, total);
    }
    ++started_;
  }

  const AblationOptions& options_;
  std::vector<Allowance> rows_;
  std::vector<std::pair<std::string, std::string>> folders_;  // and what the run is called
  std::mutex mutex_;  // guards HDF5, the result, folders_ and started_
  std::size_t started_ = 0;
  Ablation result_;
};

}  // namespace

double RowEffect::median_growth() const {
  std::vector<double> sorted = growth;
  std::ranges::sort(sorted);
  return sorted.empty() ? 1.0 : sorted[sorted.size() / 2];
}

double RowEffect::largest_growth() const {
  return growth.empty() ? 1.0 : *std::ranges::max_element(growth);
}

void add_effect(const Report& with,
                const Report& without,
                const std::string& run,
                RowEffect& effect) {
  if (without.diverged() && !with.diverged()) {
    effect.alarms.push_back(run);
  }
  for (std::size_t i = 0; i < with.tensors.size(); ++i) {
    const auto growth = effect_on(with.tensors[i], without.tensors.at(i));
    if (!growth) {
      continue;
    }
    effect.runs.insert(run);
    ++effect.tensors;
    if (std::isfinite(*growth)) {
      effect.growth.push_back(*growth);
    } else {
      ++effect.exempt;
    }
  }
}

bool has_case_of_its_own(const LedgerRow& row) {
  return !row.witness.starts_with("./dev fuzz-layouts");
}

std::vector<std::string> ablation_cases(int count, std::uint64_t seed) {
  std::vector<std::string> cases(std::begin(kMeasured), std::end(kMeasured));
  for (const char* precision : {"bf16", "f32", "fp8"}) {
    for (int i = 0; i < count; ++i) {
      cases.push_back(fuzz_layouts::text_of(fuzz_layouts::generate(seed, i, precision)));
    }
  }
  return cases;
}

Ablation ablate(const std::vector<std::string>& cases, const AblationOptions& options) {
  for (const std::string& text : cases) {
    const std::string problem = fuzz_layouts::why_impossible(fuzz_layouts::case_of(text));
    TTRACE_CHECK(problem.empty(), UsageError, "the case ", text, " cannot exist: ", problem);
  }
  return AblationRunner(options).run(cases);
}

nlohmann::ordered_json json_of(const Ablation& ablation, const std::string& command) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [allowance, effect] : ablation.effects) {
    rows.push_back({{"name", row_of(allowance).name},
                    {"alarms", effect.alarms},
                    {"needed", ablation.needed.contains(allowance)},
                    {"runs", effect.runs.size()},
                    {"tensors", effect.tensors},
                    {"exempt", effect.exempt},
                    {"median_growth", effect.median_growth()},
                    {"largest_growth", effect.largest_growth()}});
  }
  return {{"command", command},
          {"seconds", ablation.seconds},
          {"runs", ablation.runs},
          {"alarms", ablation.alarms},
          {"problems", ablation.problems},
          {"shares", ablation.shares.json()},
          {"rows", std::move(rows)}};
}

}  // namespace ttrace::roc
