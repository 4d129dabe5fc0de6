#include "scoreboard/catalogue.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace ttrace::scoreboard {
namespace {

// On one line, as a configuration's value: "[0]", "true", "0.1".
std::string text_of(const YAML::Node& node) {
  YAML::Emitter out;
  out << YAML::Flow << node;
  return out.c_str();
}

CataloguedBug bug_of(const YAML::Node& node) {
  CataloguedBug bug;
  bug.name = node["name"].as<std::string>();
  bug.chapter = node["chapter"].as<std::string>();
  bug.rows = node["rows"].as<std::vector<std::string>>();
  bug.source = node["source"].as<std::string>();
  bug.layout = node["layout"].as<std::string>();
  for (const auto& change : node["config"]) {
    bug.config[change.first.as<std::string>()] = text_of(change.second);
  }
  bug.steps = node["steps"].as<int>();
  bug.precisions = node["precisions"].as<std::vector<std::string>>();
  bug.expected = node["expected"].as<std::string>();
  bug.hint = node["hint"].as<std::string>();
  if (node["cause"]) {
    bug.cause = node["cause"].as<std::vector<std::string>>();
  }
  if (node["unlocated"]) {
    bug.unlocated = node["unlocated"].as<std::map<std::string, std::string>>();
  }
  bug.pending = node["code"] && node["code"].as<std::string>() == "pending";
  return bug;
}

}  // namespace

Catalogue read_catalogue(const std::string& file) {
  Catalogue catalogue;
  try {
    const YAML::Node root = YAML::LoadFile(file);
    for (const auto& chapter : root["chapters"]) {
      catalogue.chapters[chapter.first.as<std::string>()] = chapter.second.as<std::string>();
    }
    for (const auto& node : root["bugs"]) {
      catalogue.bugs.push_back(bug_of(node));
    }
  } catch (const YAML::Exception& error) {
    TTRACE_THROW(UsageError, "cannot read the list of bugs ", file, ": ", error.what());
  }
  TTRACE_CHECK(!catalogue.bugs.empty(), UsageError, file, " lists no bugs");
  for (const CataloguedBug& bug : catalogue.bugs) {
    TTRACE_CHECK(catalogue.chapters.contains(bug.chapter),
                 UsageError,
                 file,
                 ": bug `",
                 bug.name,
                 "` is of chapter ",
                 bug.chapter,
                 ", which is not listed");
  }
  return catalogue;
}

}  // namespace ttrace::scoreboard
