// A YAML document together with the name that messages give it.
//
// Thread-safety: values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace YAML {
class Node;
struct Mark;
}  // namespace YAML

namespace ttrace {

class YamlDocument {
 public:
  explicit YamlDocument(std::string origin) : origin_(std::move(origin)) {}

  // Throws UsageError with name and line.
  [[nodiscard]] YAML::Node load(const std::string& text) const;
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const;
  void require(bool condition, const YAML::Node& node, const std::string& what) const;

  // Calls `visit(key, value)` for the pairs of a map, refusing keys outside `known` (if any are
  // given) and repeated ones, which yaml-cpp lets pass.
  void for_each(const YAML::Node& map,
                const std::vector<std::string_view>& known,
                const std::function<void(const std::string&, const YAML::Node&)>& visit) const;

 private:
  std::string origin_;
};

// The text of a file that a user wrote. `what` names it in the message of a UsageError.
[[nodiscard]] std::string read_user_file(const std::string& file, const std::string& what);

}  // namespace ttrace
