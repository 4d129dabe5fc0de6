#include "trace/base/yaml_document.h"

#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

namespace ttrace {
namespace {

std::string join(const std::vector<std::string_view>& words) {
  std::string text;
  for (const std::string_view word : words) {
    text.append(text.empty() ? "" : ", ").append(word);
  }
  return text;
}

}  // namespace

YAML::Node YamlDocument::load(const std::string& text) const {
  try {
    return YAML::Load(text);
  } catch (const YAML::ParserException& error) {
    fail(error.mark, error.msg);
  }
}

void YamlDocument::fail(const YAML::Mark& mark, const std::string& what) const {
  TTRACE_THROW(UsageError, origin_, ":", mark.line + 1, ": ", what);
}

void YamlDocument::require(bool condition, const YAML::Node& node, const std::string& what) const {
  if (!condition) {
    fail(node.Mark(), what);
  }
}

void YamlDocument::for_each(
    const YAML::Node& map,
    const std::vector<std::string_view>& known,
    const std::function<void(const std::string&, const YAML::Node&)>& visit) const {
  require(map.IsMap(), map, "`key: value` pairs are expected");
  std::set<std::string> seen;
  for (const auto& pair : map) {
    require(pair.first.IsScalar(), pair.first, "a key must be a plain word");
    const std::string& key = pair.first.Scalar();
    require(known.empty() || std::find(known.begin(), known.end(), key) != known.end(),
            pair.first,
            "unknown key \"" + key + "\"; known here: " + join(known));
    require(
        seen.insert(key).second, pair.first, "the key \"" + key + "\" occurs twice; write it once");
    visit(key, pair.second);
  }
}

std::string read_user_file(const std::string& file, const std::string& what) {
  std::ifstream in(file);
  std::ostringstream text;
  TTRACE_CHECK(in && (text << in.rdbuf()),
               UsageError,
               "cannot read the ",
               what,
               " ",
               file,
               "; check the path");
  return text.str();
}

}  // namespace ttrace
