#include "analysis/cli/commands/drill_down.h"

#include "analysis/align/module_path.h"
#include "analysis/cli/options/stored_pair.h"
#include "analysis/findings/wording.h"
#include "analysis/same.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace::cli {
namespace {

constexpr std::size_t kMostElements = 64;  // tensors whose elements the second run keeps

// Of a parameter, its gradients and its state, the module that holds it.
std::string module_at(const TensorId& id) {
  switch (family_of(id.kind)) {
    case KindFamily::kParameter:
    case KindFamily::kParameterGradient:
    case KindFamily::kMoment:
    case KindFamily::kState:
      return module_of(parameter_of(id));
    default:
      return id.path;
  }
}

// The tensors of which the sketches alone are known that belong to what ran nearest to the first
// divergence: its module, what fed it and what it fed, in forward, backward and update.
std::vector<TensorId> near_first_divergence(const Report& sketched) {
  const std::size_t first = *sketched.first_divergence;
  const auto steps_away = [first](std::size_t i) { return i < first ? first - i : i - first; };
  std::map<std::string, std::size_t> nearest;  // by module: of its tensors
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < sketched.tensors.size(); ++i) {
    const TensorVerdict& tensor = sketched.tensors[i];
    if (tensor.id.step != sketched.tensors[first].id.step) {
      continue;
    }
    const auto [module, is_new] = nearest.try_emplace(module_at(tensor.id), steps_away(i));
    module->second = std::min(module->second, steps_away(i));
    if (tensor.comparison && tensor.comparison->is_estimate) {
      tensors.push_back(i);
    }
  }
  const auto distance = [&](std::size_t i) {
    return std::pair(nearest.at(module_at(sketched.tensors[i].id)), steps_away(i));
  };
  std::ranges::sort(tensors, {}, distance);
  tensors.resize(std::min(tensors.size(), kMostElements));
  std::vector<TensorId> ids;
  for (const std::size_t i : tensors) {
    ids.push_back(sketched.tensors[i].id);
  }
  return ids;
}

// A pattern of these ids alone, see Keeping.
std::string pattern_for(std::span<const TensorId> ids) {
  constexpr std::string_view kSyntax = R"(^$\.*+?()[]{}|)";
  std::string pattern = "^(?:";
  for (const TensorId& id : ids) {
    pattern += pattern.back() == ':' ? "" : "|";
    for (const char letter : to_string(id)) {
      pattern.append(kSyntax.find(letter) == std::string_view::npos ? 0 : 1, '\\');
      pattern += letter;
    }
  }
  return pattern + ")$";
}

// What the sketches found, and whether the second run of the candidate is the first one again.
std::string remark_of(const Report& sketched, std::size_t elements, const Sameness& runs) {
  const TensorId& first = sketched.tensors[*sketched.first_divergence].id;
  const std::string found = fmt::format(
      "sketches found a divergence, first at {}, so both programs ran again with the elements of "
      "{} around it kept",
      to_string(first),
      counted(elements, "more tensor"));
  return runs.same() ? found + "; the candidate repeated itself in every bit"
                     : fmt::format(
                           "{}; the candidate did not repeat itself: {} of {} differ "
                           "between its two runs, so what the first one did wrong may not "
                           "show here",
                           found,
                           runs.unequal.size(),
                           counted(runs.records, "record"));
}

}  // namespace

CheckOptions first_passes(CheckOptions options) {
  if (options.keep == Keep::kSketch) {
    options.forced = false;
  }
  return options;
}

DrilledDown drill_down(CheckOptions options,
                       const RunDirectory& run,
                       Report sketched,
                       Course& course) {
  const bool is_stored = options.stored && Trace::open(options.reference).keeps_elements();
  if (options.rerun.empty() && !is_stored) {
    sketched.remarks.push_back(
        "sketches say that something is beyond its bound; operators and causes need elements, but "
        "the stored reference has none and cannot run again; pass --rerun COMMAND");
    return {std::move(sketched), run.path()};
  }
  const std::vector<TensorId> around = near_first_divergence(sketched);
  options.elements = pattern_for(around);
  if (!is_stored) {
    options.stored = false;
    options.reference = options.rerun;
  }
  try {
    const RunDirectory bytes = RunDirectory::create(run.path() + "/bytes");
    course.prefix = "with elements: ";
    course.pass = 0;
    run_passes(options, bytes, course);
    const Sameness runs =
        compare_runs(Trace::open(run.candidate()), Trace::open(bytes.candidate()));
    options.judging.remarks.push_back(remark_of(sketched, around.size(), runs));
    return {judge({course.judged_by, bytes.candidate(), bytes.path()},
                  options.judging,
                  Completeness::kWhole),
            bytes.path()};
  } catch (const Error& error) {
    course.progress.clear();
    sketched.remarks.push_back(fmt::format(
        "sketches say that something is beyond its bound, but the programs could not run again "
        "with elements kept, so operators and causes are not known: {}",
        error.message()));
    return {std::move(sketched), run.path()};
  }
}

}  // namespace ttrace::cli
