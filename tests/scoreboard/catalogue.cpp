#include "scoreboard/catalogue.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace ttrace::scoreboard {
namespace {

// The value in one line, as in a configuration: "[0]", "true", "0.1".
std::string text_of(const YAML::Node& node) {
  YAML::Emitter out;
  out << YAML::Flow << node;
  return out.c_str();
}

// A key that may be left away.
template <class Value>
Value value_or(const YAML::Node& node, const char* key, Value otherwise) {
  return node[key] ? node[key].as<Value>() : otherwise;
}

std::optional<Redeclaration> redeclaration_of(const YAML::Node& node) {
  if (!node) {
    return std::nullopt;
  }
  return Redeclaration{.date = node["date"].as<std::string>(),
                       .reason = node["reason"].as<std::string>(),
                       .expected = value_or<std::string>(node, "expected", ""),
                       .hint = value_or<std::string>(node, "hint", "")};
}

void read_named_terms(const YAML::Node& node, CataloguedBug& bug) {
  for (const auto& axis : value_or(node, "axis", std::vector<std::string>{})) {
    bug.axis.insert(axis);
  }
  if (node["factor"]) {
    bug.factor = node["factor"].as<double>();
  }
  for (const int rank : value_or(node, "ranks", std::vector<int>{})) {
    bug.ranks.insert(rank);
  }
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
  bug.cause = value_or(node, "cause", bug.cause);
  bug.redeclared = redeclaration_of(node["redeclared"]);
  read_named_terms(node, bug);
  bug.difficulty = node["difficulty"].as<std::string>();
  bug.unlocated = value_or(node, "unlocated", bug.unlocated);
  bug.pending = node["code"] && node["code"].as<std::string>() == "pending";
  return bug;
}

Catalogue catalogue_of(const YAML::Node& root) {
  Catalogue catalogue;
  for (const auto& chapter : root["chapters"]) {
    catalogue.chapters[chapter.first.as<std::string>()] = chapter.second.as<std::string>();
  }
  for (const auto& row : root["paper"]) {
    catalogue.paper[row.first.as<std::string>()] = {row.second["known"].as<std::string>(),
                                                    row.second["why"].as<std::string>()};
  }
  for (const auto& node : root["bugs"]) {
    catalogue.bugs.push_back(bug_of(node));
  }
  return catalogue;
}

}  // namespace

Catalogue read_catalogue(const std::string& file) {
  Catalogue catalogue;
  try {
    catalogue = catalogue_of(YAML::LoadFile(file));
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
                 "` names chapter ",
                 bug.chapter,
                 ", which the file does not list");
  }
  return catalogue;
}

}  // namespace ttrace::scoreboard
