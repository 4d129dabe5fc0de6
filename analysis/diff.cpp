#include "analysis/diff.h"

#include "analysis/align/compatibility.h"
#include "analysis/align/matching.h"
#include "analysis/align/parallel.h"
#include "analysis/align/unmatched.h"
#include "analysis/bounds/bounds.h"
#include "analysis/bounds/ledger.h"
#include "analysis/bounds/noise.h"
#include "analysis/causes/roots.h"
#include "analysis/checks/edge_check.h"
#include "analysis/checks/exact_check.h"
#include "analysis/checks/golden_check.h"
#include "analysis/checks/judge.h"
#include "analysis/checks/loss_check.h"
#include "analysis/checks/norm_check.h"
#include "analysis/checks/routing_check.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rename.h"
#include "trace/base/precision.h"
#include "trace/file/noise_table.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

ElementType coarsest_type(const Trace& trace) {
  const std::string& text = trace.manifest().precision;
  const Precision* const precision = find_precision(text);
  TTRACE_CHECK(precision != nullptr,
               UsageError,
               fmt::format("{} has the unknown precision `{}`; write one of {} into its manifest",
                           trace.directory(),
                           text,
                           precision_names()));
  return precision->coarsest;
}

// The first three names of the reference, each with the nearest one of the candidate.
std::string nearest_pairs(std::span<const UnmatchedName> names) {
  std::string text;
  std::size_t count = 0;
  for (const UnmatchedName& name : names) {
    if (name.side == Names::kReference && !name.nearest.empty() && count < 3) {
      const NearName& near = name.nearest.front();
      text += fmt::format("{}{} {} and {} {}",
                          count++ == 0 ? "" : ", ",
                          name.path,
                          shape_text(name.shape),
                          near.path,
                          shape_text(near.shape));
    }
  }
  return text;
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
  std::vector<const Match*> all;
  for (const Match& match : matches) {
    (match.candidate.empty() ? in_reference : in_candidate) = to_string(match.id);
    all.push_back(&match);
  }
  const std::string nearest = nearest_pairs(find_unmatched(all));
  TTRACE_THROW(
      UsageError,
      fmt::format(
          "no tensor is in both traces; {} holds for example {}, {} holds {}{}; give modules the "
          "same names in both programs, or pair the names with --rename FILE (docs/rename.md)",
          r.directory(),
          in_reference,
          c.directory(),
          in_candidate,
          nearest.empty() ? "" : "; the nearest names are " + nearest));
}

void collect_notes(const std::string& side, const Trace& trace, std::vector<std::string>& notes) {
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const std::string& note : file.notes()) {
        notes.push_back(
            fmt::format("{}, rank {}, step {}: {}", side, file.layout().rank, step.step, note));
      }
    }
  }
}

// A tensor to judge: its position among the matches, and the user's tolerance.
struct Task {
  std::size_t match = 0;
  std::optional<Tolerance> tolerance;
};

std::vector<Task> plan(const std::vector<Match>& matches,
                       const Judge& judge,
                       const DiffOptions& options,
                       std::vector<std::string>& warnings) {
  Selection selection = options.selection;  // copies: they count what they apply to
  ToleranceRules tolerance = options.tolerance;
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (judge.judges(i) && selection.wants(matches[i].id, matches[i].candidate)) {
      tasks.push_back({i, tolerance.of(matches[i].id)});
    }
  }
  warnings = selection.unused();
  const std::vector<std::string> unused = tolerance.unused();
  warnings.insert(warnings.end(), unused.begin(), unused.end());
  TTRACE_CHECK(!tasks.empty(),
               UsageError,
               fmt::format("the selection leaves out all {} tensors{}; `ttrace ls` lists their ids",
                           matches.size(),
                           warnings.empty() ? "" : ": " + warnings.front()));
  return tasks;
}

std::vector<TensorVerdict> judge_all(const Judge& judge,
                                     const std::vector<Task>& tasks,
                                     const DiffOptions& options) {
  std::vector<TensorVerdict> verdicts(tasks.size());
  std::mutex mutex;  // guards done and the callback
  std::size_t done = 0;
  parallel_for(tasks.size(), options.threads, [&](std::size_t index) {
    verdicts[index] = judge.judge(tasks[index].match, tasks[index].tolerance);
    if (options.progress) {
      const std::lock_guard lock(mutex);
      options.progress(++done, tasks.size());
    }
  });
  return verdicts;
}

// A tensor that the candidate declares it cannot record is not a finding; the report lists it as
// allowed.
void mark_untraced(Report& report) {
  std::vector<IdPattern> untraced;
  for (const std::string& pattern : report.candidate.manifest.untraced) {
    untraced.emplace_back("untraced", pattern);
  }
  std::size_t count = 0;
  for (TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == Status::kMissingInCandidate &&
        any_found_in(untraced, to_string(tensor.id))) {
      tensor.excuse(Excuse::kUntraced);
      ++count;
    }
  }
  if (count > 0) {
    report.notes.push_back(fmt::format(
        "candidate: its program declares that it cannot record {} of the reference's tensors",
        count));
  }
}

// A tensor that only one side has according to the rename map is not a finding.
void mark_declared(Report& report) {
  const Side& renamed =
      report.reference.manifest.names.empty() ? report.candidate : report.reference;
  if (renamed.manifest.names.empty()) {
    return;
  }
  const RenameMap map = map_of(renamed.directory);
  const bool is_reference = &renamed == &report.reference;
  const Status missing = is_reference ? Status::kMissingInReference : Status::kMissingInCandidate;
  const Names has = is_reference ? Names::kCandidate : Names::kReference;
  std::size_t count = 0;
  for (TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == missing && map.find(has, tensor.id).of(other(has)).empty()) {
      tensor.excuse(Excuse::kDeclared);
      ++count;
    }
  }
  if (count > 0) {
    report.notes.push_back(fmt::format("{}: the rename map allows {} to be missing in the {}",
                                       name_of(has),
                                       counted(count, "tensor"),
                                       name_of(other(has))));
  }
}

// If the reference itself is inaccurate, a passed operator check says little.
void mark_weak(Report& report) {
  std::size_t count = 0;
  const TensorVerdict* worst = nullptr;
  const auto share = [](const TensorVerdict& tensor) {
    const Check& operators = *tensor.find(Question::kOperator);
    return operators.term("native") / operators.term("norm");
  };
  for (const TensorVerdict& tensor : report.tensors) {
    const Check* const operators = tensor.find(Question::kOperator);
    if (operators != nullptr && operators->term("norm") > 0.0 && is_weak(*operators)) {
      ++count;
      worst = worst == nullptr || share(tensor) > share(*worst) ? &tensor : worst;
    }
  }
  if (worst != nullptr) {
    report.notes.push_back(fmt::format(
        "reference: the operators of {} are checked weakly, because the reference itself errs by "
        "more than 1 % there in its own precision; the worst is {} with {} %",
        counted(count, "tensor"),
        to_string(worst->id),
        short_number(100.0 * share(*worst))));
  }
}

// Some scales differ without changing anything.
void note_harmless_scales(Report& report) {
  const auto count = std::ranges::count_if(report.tensors, [](const TensorVerdict& tensor) {
    return tensor.has(Excuse::kHarmlessScale);
  });
  if (count > 0) {
    report.notes.push_back(
        fmt::format("candidate: {} of FP8 operands {} from the reference's by a power of two, "
                    "which is harmless: the codes keep their bits and their values, and no more of "
                    "them are saturated or zero",
                    counted(count, "scale"),
                    count == 1 ? "differs" : "differ"));
  }
}

void mark_allowed(const DiffOptions& options, Report& report) {
  std::vector<IdPattern> missing = options.allow_missing;
  std::vector<IdPattern> failed = options.allow_failed;
  for (TensorVerdict& tensor : report.tensors) {
    if (tensor.is_finding()) {
      auto& patterns = tensor.status() == Status::kDiverged ? failed : missing;
      if (any_found_in(patterns, to_string(tensor.id))) {
        tensor.excuse(Excuse::kAllowed);
      }
    }
  }
  add_unused(missing, "missing tensor", report.warnings);
  add_unused(failed, "tensor out of bound", report.warnings);
}

std::set<std::int64_t> interrupted_steps(const std::string& side,
                                         const Trace& trace,
                                         const Selection& selection,
                                         std::vector<std::string>& lacking) {
  std::set<std::int64_t> steps;
  for (const StepTrace& step : trace.steps()) {
    if (!step.lacking.empty() && selection.wants_step(step.step)) {
      steps.insert(step.step);
      for (const std::string& sentence : step.lacking) {
        lacking.push_back(side + ": " + sentence);
      }
    }
  }
  return steps;
}

// Hidden units per head, or 0 if the model's description does not give both numbers.
std::int64_t head_size(const Section& model) {
  const auto number = [&](const char* name) {
    const auto found = model.find(name);
    std::int64_t value = 0;
    if (found != model.end()) {
      std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
    }
    return value;
  };
  const std::int64_t heads = number("heads");
  return heads > 1 && number("hidden") % heads == 0 ? number("hidden") / heads : 0;
}

// A report that holds only what the traces say about themselves.
Report described(const Trace& reference, const Trace& candidate, const DiffOptions& options) {
  Report report;
  report.reference = {reference.directory(), reference.manifest()};
  report.candidate = {candidate.directory(), candidate.manifest()};
  report.remarks = check_comparable(reference, candidate, options.selection);
  if (options.calibration) {
    require_precision(*options.calibration, reference.manifest(), candidate.manifest());
  }
  collect_notes("reference", reference, report.notes);
  collect_notes("candidate", candidate, report.notes);
  report.is_dyadic = has_dyadic_inputs(reference);
  TTRACE_CHECK(!report.is_dyadic || options.golden != nullptr,
               UsageError,
               fmt::format("{} has dyadic inputs, and only its golden pass tells which tensors "
                           "must be equal; give the folder that ttrace check made",
                           reference.directory()));
  for (const LedgerRow& row : ledger()) {
    if (!options.allowances.has(row.allowance)) {
      report.remarks.push_back(
          fmt::format("judged as if the ledger of limits had no row `{}`: {}", row.name, row.what));
    }
  }
  report.has_residuals = options.forced != nullptr;
  report.has_golden = options.golden != nullptr && !report.is_dyadic;
  return report;
}

// The checks that use other passes of the reference.
class Checks {
 public:
  Checks(const Report& report,
         const DiffOptions& options,
         const Trace& candidate,
         std::span<const Match> matches,
         const Limits& limits) {
    if (report.has_residuals) {
      operators_.emplace(*options.forced, candidate, limits);
    }
    if (report.has_golden) {
      golden_.emplace(*options.golden, report.reference.manifest.precision, options.allowances);
    }
    if (report.is_dyadic) {
      exact_.emplace(*options.golden, matches);
    }
  }
  [[nodiscard]] OtherPasses passes() const {
    return {.operators = operators_ ? &*operators_ : nullptr,
            .golden = golden_ ? &*golden_ : nullptr,
            .exact = exact_ ? &*exact_ : nullptr};
  }

 private:
  std::optional<OperatorCheck> operators_;
  std::optional<GoldenCheck> golden_;
  std::optional<ExactCheck> exact_;
};

void list_unmatched(std::span<const Match> matches, Report& report) {
  std::set<TensorId> missing;
  for (const TensorVerdict& tensor : report.tensors) {
    if (!tensor.allowed() && (tensor.status() == Status::kMissingInCandidate ||
                              tensor.status() == Status::kMissingInReference)) {
      missing.insert(tensor.id);
    }
  }
  std::vector<const Match*> unmatched;
  for (const Match& match : matches) {
    if (missing.contains(match.id)) {
      unmatched.push_back(&match);
    }
  }
  const auto in_candidate =
      std::ranges::count_if(unmatched, [](const Match* match) { return match->reference.empty(); });
  const bool on_both = in_candidate > 0 && in_candidate < std::ssize(unmatched);
  if (on_both || !report.reference.manifest.names.empty()) {
    report.unmatched = find_unmatched(unmatched);
  }
}

// Runs the checks that need several tensors. Each reads only what was found for single tensors, so
// they can run in any order.
void add_joint_checks(const Trace& reference,
                      const Trace& candidate,
                      std::span<const Match> matches,
                      const DiffOptions& options,
                      Report& report) {
  const ModelVocabulary vocabulary(candidate.manifest().roles);
  std::vector<std::function<void()>> checks = {
      [&] {
        if (!report.is_dyadic) {
          report.edges = check_edges(reference, candidate, matches, report.tensors);
        }
      },
      [&] { check_norms(report.tensors, vocabulary, options.allowances); },
      [&] { check_losses(matches, report.tensors, vocabulary, options.allowances); }};
  if (options.shuffle > 0) {
    std::mt19937_64 random(options.shuffle);
    std::ranges::shuffle(checks, random);
  }
  for (const auto& check : checks) {
    check();
  }
}

// Excuses findings. Permission comes last, because it is asked for only where no other excuse
// applies. An error counts as inherited only if it is not behind a flip.
void add_excuses(const Trace& reference, const DiffOptions& options, Report& report) {
  if (report.is_dyadic) {
    mark_copied_inputs(reference, report.tensors);
  }
  if (!report.follows_candidate() && options.allowances.has(Allowance::kBehindFlips)) {
    mark_behind_flips(report.tensors);
  }
  if (report.has_residuals) {
    mark_inherited(report.tensors, options.allowances);
  }
  mark_untraced(report);
  mark_declared(report);
  mark_allowed(options, report);
}

// Adds everything that follows from the verdicts on single tensors.
void connect(const Trace& reference,
             const Trace& candidate,
             std::span<const Match> matches,
             const DiffOptions& options,
             Report& report) {
  add_joint_checks(reference, candidate, matches, options, report);
  add_excuses(reference, options, report);
  mark_weak(report);
  note_harmless_scales(report);
  if (options.calibration) {
    note_calibration(*options.calibration, report);
  }
  list_unmatched(matches, report);
  find_roots(matches, options.forced, candidate, report);
}

Limits limits_of(const DiffOptions& options) {
  Limits limits(options.allowances);
  if (options.calibration) {
    for (const CalibratedLimit& entry : options.calibration->table) {
      limits.calibrate(entry.key, entry.limit);
    }
  }
  return limits;
}

NoiseTotals noise_of(const Trace& reference) {
  NoiseTotals totals;
  for_each_noise_pass(reference.directory(), [&](const NoisePass& pass) { totals.add(pass); });
  return totals;
}

}  // namespace

Report diff(const Trace& reference, const Trace& candidate, const DiffOptions& options) {
  Report report = described(reference, candidate, options);
  // This runs while we match: matching reads no file, and HDF5 allows only one thread at a time.
  std::future<NoiseTotals> totals =
      std::async(std::launch::async, [&reference] { return noise_of(reference); });
  const std::vector<Match> matches = match(reference, candidate);
  require_common_id(matches, reference, candidate);
  const NoiseModel noise(totals.get(), matches);
  report.noise_passes = noise.passes();
  const bool same_precision = reference.manifest().precision == candidate.manifest().precision;
  const Limits limits = limits_of(options);
  const Bounds bounds(
      noise, coarser(coarsest_type(reference), coarsest_type(candidate)), same_precision, limits);
  Interruptions interruptions;
  interruptions.reference =
      interrupted_steps("reference", reference, options.selection, report.lacking);
  interruptions.candidate =
      interrupted_steps("candidate", candidate, options.selection, report.lacking);
  const Checks checks(report, options, candidate, matches, limits);
  const Judge judge(matches,
                    bounds,
                    {.same_precision = same_precision,
                     .interruptions = std::move(interruptions),
                     .heads = {head_size(reference.manifest().model),
                               ModelVocabulary(candidate.manifest().roles)},
                     .others = checks.passes(),
                     .allowances = options.allowances,
                     .shuffle = options.shuffle});
  const std::vector<Task> tasks = plan(matches, judge, options, report.warnings);
  report.left_out = judge.count() - tasks.size();
  report.tensors = judge_all(judge, tasks, options);
  connect(reference, candidate, matches, options, report);
  return report;
}

}  // namespace ttrace
