#include "analysis/checks/own_modules.h"

#include "analysis/align/id_pattern.h"
#include "analysis/align/module_path.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

constexpr std::string_view kAlone = " alone has this module";

bool is_of_module(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kOutput || kind == Kind::kGradInput ||
         kind == Kind::kGradOutput;
}

// Whether its presence on both sides is all that fails.
bool lacks_nothing_but_a_side(const TensorVerdict& tensor) {
  return tensor.fails(Question::kPresence) &&
         std::ranges::all_of(tensor.checks, [](const Check& check) {
           return check.holds || check.question == Question::kPresence;
         });
}

// The sides that recorded something of a module.
struct Holders {
  bool reference = false;
  bool candidate = false;
};

// Every module that has parameters, itself or below.
std::set<std::string> with_parameters(std::span<const Match> matches) {
  std::set<std::string> modules;
  for (const Match& match : matches) {
    if (!is_of_parameter(match.id.kind)) {
      continue;
    }
    for (std::string& path : outer_paths(match.id.path)) {
      modules.insert(std::move(path));
    }
  }
  return modules;
}

}  // namespace

Excuses of_own_modules(std::span<const Match> matches,
                       std::span<const TensorVerdict> tensors,
                       std::span<const std::string> untraced_by_reference,
                       std::span<const std::string> untraced_by_candidate) {
  std::map<std::string, Holders> modules;
  bool any_common = false;
  for (const Match& match : matches) {
    if (is_of_module(match.id.kind)) {
      Holders& holders = modules[match.id.path];
      holders.reference = holders.reference || !match.reference.empty();
      holders.candidate = holders.candidate || !match.candidate.empty();
      any_common = any_common || (holders.reference && holders.candidate);
    }
  }
  const std::set<std::string> parameters = with_parameters(matches);
  if (!any_common || parameters.empty()) {
    return {};
  }
  std::vector<IdPattern> by_reference = id_patterns("untraced", untraced_by_reference);
  std::vector<IdPattern> by_candidate = id_patterns("untraced", untraced_by_candidate);
  Excuses excuses(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorVerdict& tensor = tensors[i];
    if (!is_of_module(tensor.id.kind) || !lacks_nothing_but_a_side(tensor)) {
      continue;
    }
    const auto holders = modules.find(tensor.id.path);
    const bool is_alone = holders != modules.end() &&
                          holders->second.reference != holders->second.candidate &&
                          !parameters.contains(tensor.id.path);
    std::vector<IdPattern>& declared = tensor.is_in_reference ? by_candidate : by_reference;
    if (is_alone && !any_found_in(declared, to_string(tensor.id))) {
      const char* const side = tensor.is_in_reference ? "reference" : "candidate";
      excuses[i] = Excused{Excuse::kOneSided, fmt::format("{}{}", side, kAlone)};
    }
  }
  return excuses;
}

bool is_of_own_module(const TensorVerdict& tensor) {
  return std::ranges::any_of(tensor.excuses, [](const Excused& excused) {
    return excused.excuse == Excuse::kOneSided && excused.sentence.ends_with(kAlone);
  });
}

std::vector<std::string> notes_on_own_modules(std::span<const TensorVerdict> tensors) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> notes;
  for (const bool in_reference : {false, true}) {
    std::vector<std::string> paths;
    std::size_t count = 0;
    for (const TensorVerdict& tensor : tensors) {
      if (!is_of_own_module(tensor) || tensor.is_in_reference != in_reference) {
        continue;
      }
      ++count;
      const std::string path = pattern_of(tensor.id.path);
      if (std::ranges::find(paths, path) == paths.end()) {
        paths.push_back(path);
      }
    }
    if (count == 0) {
      continue;
    }
    std::string shown = paths.front();
    for (std::size_t i = 1; i < std::min(paths.size(), kShown); ++i) {
      shown += ", " + paths[i];
    }
    if (paths.size() > kShown) {
      shown += fmt::format(" and {} more", paths.size() - kShown);
    }
    notes.push_back(fmt::format(
        "{}: it alone has the {} {}, so {} {} not compared. If the other program has {} under "
        "another name, pair the names with --rename FILE; if not, `untraced` of ttrace.attach "
        "leaves {} out",
        in_reference ? "reference" : "candidate",
        paths.size() == 1 ? "module" : "modules",
        shown,
        counted(count, "tensor"),
        count == 1 ? "is" : "are",
        paths.size() == 1 ? "it" : "them",
        paths.size() == 1 ? "it" : "them"));
  }
  return notes;
}

}  // namespace ttrace
