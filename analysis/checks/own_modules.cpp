#include "analysis/checks/own_modules.h"

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

Excuses of_own_modules(std::span<const Match> matches, std::span<const TensorVerdict> tensors) {
  std::map<std::string, Holders> modules;
  bool any_common = false;
  for (const Match& match : matches) {
    if (is_of_module(match.id.kind)) {
      Holders& sides = modules[match.id.path];
      sides.reference = sides.reference || !match.reference.empty();
      sides.candidate = sides.candidate || !match.candidate.empty();
      any_common = any_common || (sides.reference && sides.candidate);
    }
  }
  const bool any_alone = std::ranges::any_of(
      modules, [](const auto& entry) { return entry.second.reference != entry.second.candidate; });
  if (!any_common || !any_alone) {
    return {};
  }
  const std::set<std::string> parameters = with_parameters(matches);
  Excuses excuses(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorId& id = tensors[i].id;
    if (!is_of_module(id.kind) || !tensors[i].fails(Question::kPresence)) {
      continue;
    }
    const auto sides = modules.find(id.path);
    if (sides != modules.end() && sides->second.reference != sides->second.candidate &&
        !parameters.contains(id.path)) {
      excuses[i] = Excused{Excuse::kOneSided,
                           fmt::format("{}{}", sides->second.reference ? "reference" : "candidate", kAlone)};
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
