#include "hooks/base/module_index.h"

#include <ttrace/error.h>

namespace ttrace {

ModuleIndex::ModuleIndex(
    const std::vector<std::pair<std::string, const torch::nn::Module*>>& modules) {
  for (const auto& [path, module] : modules) {
    if (module != nullptr) {
      paths_.emplace(module, path);  // a module registered twice keeps its first name
      objects_.insert(path);
    }
    names_.insert(path);
  }
}

std::string ModuleIndex::path_of(const torch::nn::Module* module, std::string_view child) const {
  const auto found = paths_.find(module);
  TTRACE_CHECK(found != paths_.end(),
               UsageError,
               "a Scope",
               child.empty() ? std::string() : " (child '" + std::string(child) + "')",
               " was opened on a module that does not belong to the one given to Session::attach; "
               "register it with register_module");
  std::string path = found->second;
  if (!child.empty()) {
    path += path.empty() ? "" : ".";
    path += child;
  }
  return path;
}

bool ModuleIndex::is_leaf(const std::string& path) const {
  if (path.empty()) {
    return names_.size() <= 1;
  }
  // '/' follows '.' directly in ASCII: names in [path., path/) are those below.
  const auto below = names_.lower_bound(path + ".");
  return below == names_.end() || *below >= path + "/";
}

}  // namespace ttrace
