#include "bugs.h"

#include "bug_needs.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <utility>

namespace megatron_mini {

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
    TTRACE_THROW(UsageError, file, ": ", error.what());
  }
  return bugs;
}

Bugs::Bugs(std::string active, std::optional<double> size)
    : active_(std::move(active)), size_(size) {}

Bugs Bugs::load(const std::string& file, const std::string& active, std::optional<double> size) {
  const auto declared = load_bugs(file);
  const auto found = std::find_if(
      declared.begin(), declared.end(), [&](const auto& bug) { return bug.name == active; });
  TTRACE_CHECK(found != declared.end(),
               UsageError,
               "bug `",
               active,
               "` is not declared; --list-bugs prints those that are");
  TTRACE_CHECK(!found->pending,
               UsageError,
               "bug `",
               active,
               "` is declared but not re-created yet; --list-bugs prints those that are");
  TTRACE_CHECK(!size || found->size != "none",
               UsageError,
               "bug `",
               active,
               "` has no magnitude; leave --bug-size away");
  Bugs bugs(active, size);
  bugs.needs_ = found->needs;
  return bugs;
}

void Bugs::check_can_act(const RunFacts& run) const {
  TTRACE_CHECK(holds(needs_, run),
               UsageError,
               "bug `",
               active_,
               "` cannot act in this run: it needs ",
               needs_);
}

}  // namespace megatron_mini
