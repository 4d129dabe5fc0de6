#include "analysis/diff.h"

#include "analysis/align/activation_type.h"
#include "analysis/align/compatibility.h"
#include "analysis/align/index_by_id.h"
#include "analysis/align/machine.h"
#include "analysis/align/matching.h"
#include "analysis/align/model_numbers.h"
#include "analysis/align/noted.h"
#include "analysis/align/parallel.h"
#include "analysis/align/unmatched.h"
#include "analysis/bounds/bounds.h"
#include "analysis/bounds/coverage.h"
#include "analysis/bounds/gradient_factors.h"
#include "analysis/bounds/ledger.h"
#include "analysis/bounds/noise.h"
#include "analysis/causes/roots.h"
#include "analysis/checks/broken_ties.h"
#include "analysis/checks/dealt_rows.h"
#include "analysis/checks/draw_check.h"
#include "analysis/checks/edge_check.h"
#include "analysis/checks/exact_check.h"
#include "analysis/checks/excuses.h"
#include "analysis/checks/golden_check.h"
#include "analysis/checks/judge.h"
#include "analysis/checks/law_check.h"
#include "analysis/checks/one_sided.h"
#include "analysis/checks/one_sided_states.h"
#include "analysis/checks/other_data.h"
#include "analysis/checks/other_precision.h"
#include "analysis/checks/own_modules.h"
#include "analysis/checks/summary_checks.h"
#include "analysis/checks/unjudged.h"
#include "analysis/findings/notes.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rename.h"
#include "trace/base/random.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/file/noise_table.h"
#include "trace/samples/given_data.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <future>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// A tensor to judge: its position among the matches, and the user's tolerance.
struct Task {
  std::size_t match = 0;
  std::optional<Tolerance> tolerance;
};

std::vector<Task> plan(const std::vector<Match>& matches,
                       const Judge& judge,
                       const DiffOptions& options,
                       Report& report) {
  Selection selection = options.selection;  // copies: they count what they apply to
  ToleranceRules tolerance = options.tolerance;
  std::vector<Task> tasks;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (!judge.judges(i)) {
      continue;
    }
    if (selection.wants(matches[i].id, matches[i].candidate)) {
      tasks.push_back({i, tolerance.of(matches[i].id)});
    } else {
      ++report.left_out;
    }
  }
  std::vector<std::string>& warnings = report.warnings;
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

// The side whose names a rename map has changed; null if there is none.
const Side* renamed_side(const Report& report) {
  const Side& renamed =
      report.reference.manifest.names.empty() ? report.candidate : report.reference;
  return renamed.manifest.names.empty() ? nullptr : &renamed;
}

// The side that has what the rename map lets be missing in the other one.
Names side_with_more(const Report& report) {
  return renamed_side(report) == &report.reference ? Names::kCandidate : Names::kReference;
}

// What only one side has according to the rename map.
Excuses declared(const Report& report) {
  const Side* const renamed = renamed_side(report);
  if (renamed == nullptr) {
    return {};
  }
  const RenameMap map = map_of(renamed->directory);
  const Names has = side_with_more(report);
  const Status missing =
      has == Names::kCandidate ? Status::kMissingInReference : Status::kMissingInCandidate;
  return excused(report.tensors, Excuse::kDeclared, [&](const TensorVerdict& tensor) {
    return tensor.status() == missing && map.find(has, tensor.id).of(other(has)).empty();
  });
}

// Notes how many tensors a program or a rename map lets be missing.
void note_permissions(Report& report) {
  const auto count = [&](Excuse excuse) {
    return std::ranges::count_if(report.tensors, [&](const TensorVerdict& tensor) {
      return tensor.has(excuse) && tensor.is_wrong();
    });
  };
  for (const Status missing : {Status::kMissingInCandidate, Status::kMissingInReference}) {
    const auto tensors = std::ranges::count_if(report.tensors, [&](const TensorVerdict& tensor) {
      return tensor.has(Excuse::kUntraced) && tensor.status() == missing;
    });
    const bool is_candidate = missing == Status::kMissingInCandidate;
    if (tensors > 0) {
      report.notes.push_back(
          fmt::format("{}: its program declares that it cannot record {} of the {}'s tensors",
                      is_candidate ? "candidate" : "reference",
                      tensors,
                      is_candidate ? "reference" : "candidate"));
    }
  }
  std::ranges::move(notes_on_own_modules(report.tensors), std::back_inserter(report.notes));
  if (const auto tensors = count(Excuse::kDeclared); tensors > 0) {
    const Names has = side_with_more(report);
    report.notes.push_back(fmt::format("{}: the rename map allows {} to be missing in the {}",
                                       name_of(has),
                                       counted(tensors, "tensor"),
                                       name_of(other(has))));
  }
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

// A report that holds only what the traces say about themselves.
Report described(const Trace& reference, const Trace& candidate, const DiffOptions& options) {
  Report report;
  report.reference = {reference.directory(), reference.manifest(), activation_type(reference)};
  report.candidate = {candidate.directory(), candidate.manifest(), activation_type(candidate)};
  report.remarks = check_comparable(reference, candidate, options.selection);
  report.remarks.insert(report.remarks.end(), options.remarks.begin(), options.remarks.end());
  if (options.calibration) {
    require_precision(*options.calibration, reference.manifest(), candidate.manifest());
  }
  add_notes("reference", reference, report.notes);
  add_notes("candidate", candidate, report.notes);
  report.not_seen = stated_not_seen(reference, candidate);
  if (options.samples != nullptr) {
    const std::vector<std::string>& dealt = options.samples->remarks;
    report.remarks.insert(report.remarks.end(), dealt.begin(), dealt.end());
    for (const std::string& sentence : options.samples->unseen) {
      report.not_seen.push_back({NotSeenKind::kSamples, std::nullopt, sentence});
    }
  }
  report.is_dyadic = has_dyadic_inputs(reference.manifest());
  if (reference.manifest().world_size == 1 && candidate.manifest().world_size == 1) {
    report.not_seen.push_back(
        {NotSeenKind::kParallel, std::nullopt, "both programs run on one device"});
  }
  report.not_seen.insert(report.not_seen.end(), options.not_seen.begin(), options.not_seen.end());
  TTRACE_CHECK(!report.is_dyadic || options.golden != nullptr,
               UsageError,
               fmt::format("{} has dyadic inputs, and only its golden pass shows which tensors "
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
OtherPasses other_passes(const Report& report,
                         const DiffOptions& options,
                         const Trace& candidate,
                         std::span<const Match> matches) {
  OtherPasses passes;
  if (report.has_residuals) {
    passes.operators.emplace(*options.forced, candidate, options.allowances);
  }
  if (report.has_golden) {
    passes.golden.emplace(*options.golden, report.reference.manifest.precision, options.allowances);
  }
  if (report.is_dyadic) {
    passes.exact.emplace(*options.golden, matches);
  }
  return passes;
}

void list_unmatched(std::span<const Match> matches, Report& report) {
  const IndexById<const Match> by_id(matches);
  std::vector<const Match*> unmatched;
  for (const TensorVerdict& tensor : report.tensors) {
    if (!tensor.allowed() && (tensor.status() == Status::kMissingInCandidate ||
                              tensor.status() == Status::kMissingInReference)) {
      unmatched.push_back(by_id.find(tensor.id));
    }
  }
  const auto in_candidate =
      std::ranges::count_if(unmatched, [](const Match* match) { return match->reference.empty(); });
  const bool on_both = in_candidate > 0 && in_candidate < std::ssize(unmatched);
  if (on_both || !report.reference.manifest.names.empty()) {
    report.unmatched = find_unmatched(unmatched);
  }
}

// Calls all of them, in an order that follows from `order` if that is above 0.
void call_all(std::vector<std::function<void()>> calls, std::uint64_t order) {
  if (order > 0) {
    shuffle(calls, order);
  }
  for (const auto& call : calls) {
    call();
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
  call_all({[&] {
              if (report.is_dyadic) {
                mark_copied_inputs(reference, candidate, report.tensors);
              } else {
                report.edges = check_edges(reference, candidate, matches, report.tensors);
              }
            },
            [&] {
              check_norms(report.tensors, vocabulary, coarsest_type(candidate), options.allowances);
            },
            [&] {
              // Forced passes ask every operator, and more sharply.
              if (!report.has_residuals && !report.is_dyadic) {
                check_laws(reference, candidate, report.tensors);
              }
            },
            [&] { check_losses(matches, report.tensors, vocabulary, options.allowances); },
            [&] { check_draws(candidate, matches, report.tensors, vocabulary, report.notes); }},
           options.shuffle);
}

// Every rule reads the tensors as they were judged. What the rules excuse is added once all have
// spoken, so that they can be asked in any order.
void add_excuses(std::span<const Match> matches, const DiffOptions& options, Report& report) {
  const Allowances& allowances = options.allowances;
  const ModelVocabulary vocabulary(report.candidate.manifest.roles);
  std::vector<TensorVerdict>& tensors = report.tensors;
  const auto choices = [&] {
    return either(report.follows_candidate() || !allowances.has(Allowance::kChoices)
                      ? Excuses()
                      : behind_flips(tensors),
                  behind_draws(matches, tensors, hidden_draws(report.not_seen)));
  };
  std::vector<Excuses> found;
  const auto add = [&](Excuses excuses) { found.push_back(std::move(excuses)); };
  call_all(
      {[&] { add(choices()); },
       [&] { add(report.has_residuals ? inherited(tensors, choices(), allowances) : Excuses()); },
       [&] { add(behind_norms(tensors, vocabulary, allowances)); },
       [&] {
         const auto of = [&](const Side& side, Status missing) {
           add(untraced(tensors, missing, side.manifest.untraced));
         };
         of(report.candidate, Status::kMissingInCandidate);
         of(report.reference, Status::kMissingInReference);
       },
       [&] { add(declared(report)); },
       [&] {
         if (renamed_side(report) == nullptr) {  // else the map says what only one side has
           add(of_own_modules(matches,
                              tensors,
                              report.reference.manifest.untraced,
                              report.candidate.manifest.untraced));
         }
       },
       [&] { add(one_sided_states(tensors)); },
       [&] {
         add(one_sided(matches,
                       tensors,
                       report.reference.manifest.untraced,
                       report.candidate.manifest.untraced));
       },
       [&] { add(says_nothing(tensors)); },
       [&] {
         add(permitted(tensors, {options.allow_missing, options.allow_failed}));
       }},
      options.shuffle);
  for (Excuses& excuses : found) {
    for (std::size_t i = 0; i < excuses.size(); ++i) {
      if (excuses[i]) {
        tensors[i].excuse(excuses[i]->excuse, std::move(excuses[i]->sentence));
      }
    }
  }
}

// States how much depends on random numbers that the reference could not follow.
void state_random(Report& report) {
  const auto is_unjudged = [](const TensorVerdict& tensor) {
    return tensor.has(Excuse::kRandom) && tensor.status() == Status::kNotJudged;
  };
  const auto count = std::ranges::count_if(report.tensors, is_unjudged);
  if (count > 0) {
    const auto first = std::ranges::find_if(report.tensors, is_unjudged);
    report.not_seen.push_back(
        {NotSeenKind::kRandom,
         std::nullopt,
         fmt::format("{} not judged, because they depend on random numbers that the reference "
                     "could not follow, or are such numbers; the first is {}",
                     count == 1 ? "1 tensor is" : fmt::format("{} tensors are", count),
                     to_string(first->id))});
  }
}

Heads heads_of(const Trace& reference, const Trace& candidate) {
  return {head_size(reference.manifest().model), ModelVocabulary(candidate.manifest().roles)};
}

// Of programs that compute on other data, no tensor says anything.
void excuse_other_data(const Trace& reference,
                       const Trace& candidate,
                       const NoiseModel& noise,
                       const DiffOptions& options,
                       Report& report) {
  report.other_data =
      why_other_data(reference,
                     candidate,
                     noise,
                     report.tensors,
                     options.samples != nullptr && options.samples->knows_nothing());
  if (report.other_data.empty()) {
    return;
  }
  for (TensorVerdict& tensor : report.tensors) {
    tensor.excuse(Excuse::kOtherData);
  }
}

// Adds everything that follows from the verdicts on single tensors.
void connect(const Trace& reference,
             const Trace& candidate,
             std::span<const Match> matches,
             const NoiseModel& noise,
             const DiffOptions& options,
             Report& report) {
  add_joint_checks(reference, candidate, matches, options, report);
  name_other_precision(report);
  add_excuses(matches, options, report);
  excuse_other_data(reference, candidate, noise, options, report);
  state_unjudged_values(report);
  note_permissions(report);
  std::ranges::move(unseen_states(report.tensors), std::back_inserter(report.not_seen));
  if (auto rows = unseen_rows(matches)) {
    report.not_seen.push_back(*std::move(rows));
  }
  state_random(report);
  warn_of_unused(report.tensors, {options.allow_missing, options.allow_failed}, report.warnings);
  note_weak_operators(report);
  note_harmless_scales(report);
  note_one_sided(report);
  if (options.calibration) {
    note_calibration(*options.calibration, report);
  }
  list_unmatched(matches, report);
  find_roots(matches, options.forced, candidate, heads_of(reference, candidate), report);
}

NoiseTotals noise_of(const Trace& reference) {
  NoiseTotals totals;
  for_each_noise_pass(reference.directory(), [&](const NoisePass& pass) { totals.add(pass); });
  return totals;
}

// What the reference does not reproduce, if somebody ran it twice; the report says what was found.
Irreproducible self_check_of(const Trace& reference,
                             std::span<const Match> matches,
                             const DiffOptions& options,
                             Report& report) {
  const std::optional<NoisePass> pass = read_self_check(reference.directory());
  if (!pass) {
    return {};
  }
  Irreproducible result(*pass, matches);
  report.notes.push_back(result.sentence());
  return options.allowances.has(Allowance::kIrreproducible) ? std::move(result) : Irreproducible();
}

}  // namespace

Report diff(const Trace& reference, const Trace& candidate, const DiffOptions& options) {
  Report report = described(reference, candidate, options);
  // This runs while we match: matching reads no file, and HDF5 allows only one thread at a time.
  std::future<NoiseTotals> totals =
      std::async(std::launch::async, [&reference] { return noise_of(reference); });
  const std::vector<Match> matches = match(reference, candidate);
  require_common_id(matches, reference, candidate);
  NoiseTotals passes = totals.get();  // first: HDF5 allows only one thread at a time
  const NoiseModel noise(std::move(passes),
                         matches,
                         self_check_of(reference, matches, options, report),
                         gradient_factors(matches));
  report.noise_passes = noise.passes();
  const bool same_precision = reference.manifest().precision == candidate.manifest().precision;
  const bool same_types =
      same_precision || misses_intention(reference.manifest(), candidate.manifest());
  if (same_precision) {
    report.noise_coverage = coverage_of(noise, matches);
  }
  const Limits limits = options.calibration ? options.calibration->limits(options.allowances)
                                            : Limits(options.allowances);
  const Bounds bounds(noise,
                      coarser(coarsest_type(reference), coarsest_type(candidate)),
                      same_precision,
                      limits,
                      rounded_operands(candidate.manifest()).has_value());
  Interruptions interruptions;
  interruptions.reference =
      interrupted_steps("reference", reference, options.selection, report.lacking);
  interruptions.candidate =
      interrupted_steps("candidate", candidate, options.selection, report.lacking);
  const Judge judge(matches,
                    bounds,
                    {.same_types = same_types,
                     .interruptions = std::move(interruptions),
                     .heads = heads_of(reference, candidate),
                     .others = other_passes(report, options, candidate, matches),
                     .samples = options.samples,
                     .given = given_inputs(reference, candidate),
                     .allowances = options.allowances,
                     .shuffle = options.shuffle});
  const std::vector<Task> tasks = plan(matches, judge, options, report);
  report.tensors = judge_all(judge, tasks, options);
  explain_ties(reference.directory(), candidate.directory(), report.tensors);
  connect(reference, candidate, matches, noise, options, report);
  hold_against(options.required, report);
  return report;
}

}  // namespace ttrace
