#include "analysis/zoom/target.h"

#include "analysis/align/module_path.h"

#include <ttrace/error.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// What the reference recorded of modules.
struct Modules {
  std::set<std::string> scoped;  // that have a scope
  std::vector<const Edge*> edges;
};

Modules modules_of(const Trace& trace) {
  Modules modules;
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      const Kind kind = record.id.kind;
      if ((kind == Kind::kInput || kind == Kind::kOutput) && !record.inferred) {
        modules.scoped.insert(record.id.path);
      }
    }
    for (const Edge& edge : file.edges()) {
      modules.scoped.insert(edge.consumer.path);
      modules.edges.push_back(&edge);
    }
  }
  return modules;
}

// The module around `path` that has a scope.
std::string around(const std::string& path, const Modules& modules) {
  const std::vector<std::string> outer = outer_paths(path);
  const auto found = std::ranges::find_if(
      outer, [&](const std::string& module) { return modules.scoped.contains(module); });
  return found == outer.end() ? std::string(kOutsideOfModules) : *found;
}

std::string itself_or_around(const std::string& path, const Modules& modules) {
  if (path == kWholeModel) {
    return std::string(kOutsideOfModules);
  }
  return modules.scoped.contains(path) ? path : around(path, modules);
}

// Those that take the output, and the code that calls them.
std::vector<std::string> consumers_of(const TensorId& gradient, const Modules& modules) {
  const TensorId output = as_kind(gradient, Kind::kOutput);
  std::vector<std::string> found{around(gradient.path, modules)};
  for (const Edge* const edge : modules.edges) {
    const std::string module = itself_or_around(edge->consumer.path, modules);
    const bool is_inside =
        found.front() != kOutsideOfModules && module.starts_with(found.front() + ".");
    if (edge->producer == output && !is_inside && std::ranges::find(found, module) == found.end()) {
      found.push_back(module);
    }
  }
  return found;
}

std::vector<std::string> modules_to_zoom(const TensorId& id, const Modules& modules) {
  switch (id.kind) {
    case Kind::kInput:
    case Kind::kReceived:
    case Kind::kSent:
      return {around(id.path, modules)};
    case Kind::kGradOutput:
      return consumers_of(id, modules);
    case Kind::kLoss:
      return {std::string(kOutsideOfModules)};
    case Kind::kParamGrad:
      return {itself_or_around(module_of(id.path), modules)};
    case Kind::kOutput:
    case Kind::kGradInput:
    case Kind::kRouting:
    case Kind::kDraw:
    case Kind::kScale:
    case Kind::kAmaxHistory:
    case Kind::kOperand:
      return {itself_or_around(id.path, modules)};
    default:
      TTRACE_THROW(UsageError,
                   "the first divergence ",
                   to_string(id),
                   " is not made inside of a module, so there is no operator to zoom into");
  }
}

}  // namespace

ZoomTarget zoom_target(const TensorId& id, const Trace& reference) {
  return {id.step, id.microbatch, modules_to_zoom(id, modules_of(reference))};
}

}  // namespace ttrace
