#include "catalogue.h"

#include "../error.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace megatron_mini::faults {

std::vector<BugEntry> load_bugs(const std::string& file) {
  std::vector<BugEntry> bugs;
  try {
    const YAML::Node list = YAML::LoadFile(file);
    for (const auto& node : list["bugs"]) {
      const auto text = [&](const char* key) { return node[key].as<std::string>(); };
      bugs.push_back({.name = text("name"),
                      .source = text("source"),
                      .needs = text("needs"),
                      .expected = text("expected"),
                      .hint = text("hint"),
                      .size = text("size"),
                      .pending = node["code"].IsDefined()});
    }
  } catch (const YAML::Exception& error) {
    fail<UsageError>(file, ": ", error.what());
  }
  return bugs;
}

BugEntry find_bug(const std::string& file, const std::string& name, std::optional<double> size) {
  const auto declared = load_bugs(file);
  const auto found = std::find_if(
      declared.begin(), declared.end(), [&](const auto& bug) { return bug.name == name; });
  require<UsageError>(found != declared.end(),
                      "bug `",
                      name,
                      "` is not declared; --list-bugs prints all declared bugs");
  require<UsageError>(
      !found->pending,
      "bug `",
      name,
      "` is declared, but the program cannot plant it yet; --list-bugs prints those that it can");
  require<UsageError>(
      !size || found->size != "none", "bug `", name, "` has no magnitude; leave --bug-size out");
  return *found;
}

}  // namespace megatron_mini::faults
