// The canonical path of a module object, and which modules are leaves.
//
// Thread-safety: immutable after construction.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ttrace {

class ModuleIndex {
 public:
  // Null modules are known by their paths alone.
  explicit ModuleIndex(
      const std::vector<std::pair<std::string, const torch::nn::Module*>>& modules);

  // Throws UsageError for a module that attach() has not seen.
  [[nodiscard]] std::string path_of(const torch::nn::Module* module, std::string_view child) const;
  // Whether the module is a C++ object. We see every call of other modules, so none has to be
  // inferred.
  [[nodiscard]] bool is_object(const std::string& path) const { return objects_.contains(path); }
  // Whether no known module lies below `path`.
  [[nodiscard]] bool is_leaf(const std::string& path) const;

 private:
  std::unordered_map<const torch::nn::Module*, std::string> paths_;
  std::set<std::string, std::less<>> names_;
  std::set<std::string, std::less<>> objects_;  // names of C++ objects
};

}  // namespace ttrace
