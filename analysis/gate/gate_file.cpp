#include "analysis/gate/gate_file.h"

#include "trace/base/parse_integer.h"
#include "trace/base/pattern.h"
#include "trace/base/yaml_document.h"

#include <ttrace/error.h>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

using Date = std::chrono::year_month_day;

std::optional<Date> date_of(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') {
    return std::nullopt;
  }
  const auto year = parse_number<unsigned>(text.substr(0, 4));
  const auto month = parse_number<unsigned>(text.substr(5, 2));
  const auto day = parse_number<unsigned>(text.substr(8, 2));
  if (!year || !month || !day) {
    return std::nullopt;
  }
  const Date date{std::chrono::year(static_cast<int>(*year)),
                  std::chrono::month(*month),
                  std::chrono::day(*day)};
  return date.ok() ? std::optional(date) : std::nullopt;
}

// "2027-03-01"
std::string date_text(Date date) {
  return fmt::format("{:04}-{:02}-{:02}",
                     static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()),
                     static_cast<unsigned>(date.day()));
}

// Names become names of files.
bool is_file_name(const std::string& name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of(kLetters) == std::string::npos;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), document_(path) {}

  GateFile read() {
    const YAML::Node root = document_.load(read_user_file(path_, "gate file"));
    GateOptions of_all;
    std::optional<YAML::Node> layouts;
    std::optional<YAML::Node> permissions;
    document_.for_each(root,
                       {"store", "references", "check", "layouts", "allow"},
                       [&](const std::string& key, const YAML::Node& value) {
                         if (key == "store") {
                           file_.store = text(value);
                         } else if (key == "references") {
                           read_references(value);
                         } else if (key == "check") {
                           of_all = options(value);
                         } else if (key == "layouts") {
                           layouts = value;
                         } else {
                           permissions = value;
                         }
                       });
    document_.require(!file_.store.empty(),
                      root,
                      "`store` is missing; name the folder in which stored references lie");
    document_.require(!file_.references.empty(),
                      root,
                      "`references` is missing; name at least one trusted program");
    document_.require(layouts.has_value(), root, "`layouts` is missing; name at least one layout");
    read_layouts(*layouts, of_all);
    if (permissions) {
      read_permissions(*permissions);
    }
    return std::move(file_);
  }

 private:
  std::string text(const YAML::Node& node) const {
    document_.require(node.IsScalar() && !node.Scalar().empty(), node, "a text is expected");
    return node.Scalar();
  }

  std::vector<std::string> texts(const YAML::Node& node) const {
    std::vector<std::string> result;
    document_.require(node.IsSequence(), node, "a list is expected: [ONE, TWO]");
    for (const YAML::Node& entry : node) {
      result.push_back(text(entry));
    }
    return result;
  }

  GateOptions options(const YAML::Node& map) const {
    GateOptions result;
    document_.for_each(map, {}, [&](const std::string& key, const YAML::Node& value) {
      if (value.IsSequence()) {
        result[key] = texts(value);
      } else if (const std::string word = text(value); word == "true") {
        result[key] = {};
      } else if (word == "false") {
        result[key] = {"false"};
      } else {
        result[key] = {word};
      }
    });
    return result;
  }

  std::string named(const std::string& name, const YAML::Node& node) const {
    document_.require(is_file_name(name),
                      node,
                      fmt::format("'{}' names a folder; use letters, digits, - and _", name));
    return name;
  }

  void read_references(const YAML::Node& map) {
    document_.for_each(map, {}, [&](const std::string& name, const YAML::Node& value) {
      GateReference reference{.name = named(name, value)};
      if (value.IsScalar()) {
        reference.command = text(value);
      } else {
        document_.for_each(value,
                           {"command", "made_from", "may_differ", "check"},
                           [&](const std::string& key, const YAML::Node& entry) {
                             if (key == "command") {
                               reference.command = text(entry);
                             } else if (key == "check") {
                               reference.options = options(entry);
                             } else {
                               (key == "made_from" ? reference.made_from : reference.may_differ) =
                                   texts(entry);
                             }
                           });
        document_.require(!reference.command.empty(),
                          value,
                          fmt::format("the reference {} has no `command`", name));
      }
      without_refused(reference.options);
      file_.references.push_back(std::move(reference));
    });
  }

  void read_layouts(const YAML::Node& map, const GateOptions& of_all) {
    document_.for_each(map, {}, [&](const std::string& name, const YAML::Node& value) {
      GateLayout layout{.name = named(name, value), .options = of_all};
      if (value.IsScalar()) {
        layout.command = text(value);
      } else {
        document_.for_each(value,
                           {"command", "reference", "check", "world", "ranks"},
                           [&](const std::string& key, const YAML::Node& entry) {
                             if (key == "check") {
                               for (auto& [option, values] : options(entry)) {
                                 layout.options[option] = values;
                               }
                             } else if (key == "command" || key == "reference") {
                               (key == "command" ? layout.command : layout.reference) = text(entry);
                             }
                           });
        document_.require(
            !layout.command.empty(), value, fmt::format("the layout {} has no `command`", name));
        simulate(layout, value);
      }
      if (!layout.is_simulated) {
        layout.options.emplace("zoom", std::vector<std::string>());
      }
      without_refused(layout.options);
      find_reference(layout, value);
      file_.layouts.push_back(std::move(layout));
    });
    document_.require(!file_.layouts.empty(), map, "`layouts` is empty; name at least one layout");
  }

  // One process simulates the ranks of a layout that says `world: simulated`. A zoom cannot follow
  // it.
  void simulate(GateLayout& layout, const YAML::Node& node) const {
    const YAML::Node world = node["world"];
    const YAML::Node ranks = node["ranks"];
    if (!world.IsDefined() && !ranks.IsDefined()) {
      return;
    }
    const bool is_simulated = world.IsDefined() && text(world) == "simulated";
    const auto count =
        ranks.IsDefined() ? parse_number<unsigned>(text(ranks)) : std::optional<unsigned>();
    document_.require(
        is_simulated && count && *count > 1,
        node,
        fmt::format("the layout {} must say both `world: simulated` and how many ranks "
                    "one process simulates, such as `ranks: 64`, or neither",
                    layout.name));
    layout.is_simulated = true;
    layout.command = fmt::format("env TTRACE_SIMULATE={} {}", *count, layout.command);
  }

  // An option that is false is not given.
  static void without_refused(GateOptions& options) {
    std::erase_if(options, [](const auto& option) {
      return option.second == std::vector<std::string>{"false"};
    });
  }

  void find_reference(GateLayout& layout, const YAML::Node& node) const {
    if (layout.reference.empty()) {
      document_.require(file_.references.size() == 1,
                        node,
                        fmt::format("the layout {} does not say which reference it has; write "
                                    "`reference: NAME`",
                                    layout.name));
      layout.reference = file_.references.front().name;
      return;
    }
    document_.require(
        std::ranges::find(file_.references, layout.reference, &GateReference::name) !=
            file_.references.end(),
        node,
        fmt::format("the layout {} names the reference '{}', which `references` does not have",
                    layout.name,
                    layout.reference));
  }

  void read_permissions(const YAML::Node& list) {
    document_.require(list.IsSequence(), list, "`allow` must be a list");
    for (const YAML::Node& entry : list) {
      file_.permissions.push_back(permission(entry));
    }
  }

  GatePermission permission(const YAML::Node& entry) const {
    GatePermission result;
    result.place = fmt::format("{}:{}", path_, entry.Mark().line + 1);
    document_.for_each(
        entry,
        {"failed", "missing", "layouts", "reason", "expires"},
        [&](const std::string& key, const YAML::Node& value) {
          if (key == "failed" || key == "missing") {
            document_.require(result.pattern.empty(),
                              value,
                              "an entry has either `failed` or `missing`; write two entries");
            result.missing = key == "missing";
            result.pattern = text(value);
          } else if (key == "layouts") {
            result.layouts = texts(value);
          } else if (key == "reason") {
            result.reason = text(value);
          } else {
            const auto date = date_of(text(value));
            document_.require(
                date.has_value(),
                value,
                fmt::format("`expires` is '{}'; it must be a day like 2027-03-01", text(value)));
            result.expires = *date;
          }
        });
    document_.require(!result.pattern.empty(),
                      entry,
                      "an entry of `allow` needs `failed: REGEX` or `missing: REGEX`");
    document_.require(!result.reason.empty(), entry, "an entry of `allow` needs a `reason`");
    document_.require(
        result.expires.ok() && result.expires.year() != std::chrono::year(0),
        entry,
        "an entry of `allow` needs the last day on which it holds: `expires: 2027-03-01`");
    static_cast<void>(
        Pattern(result.place + ": " + (result.missing ? "missing" : "failed"), result.pattern));
    for (const std::string& name : result.layouts) {
      document_.require(
          std::ranges::find(file_.layouts, name, &GateLayout::name) != file_.layouts.end(),
          entry,
          fmt::format("`allow` names the layout '{}', which `layouts` does not have", name));
    }
    return result;
  }

  std::string path_;
  YamlDocument document_;
  GateFile file_;
};

}  // namespace

std::string GatePermission::option() const {
  return missing ? "--allow-missing" : "--allow-failed";
}

bool GatePermission::concerns(const std::string& layout) const {
  return layouts.empty() || std::ranges::find(layouts, layout) != layouts.end();
}

const GateReference& GateFile::reference_of(const GateLayout& layout) const {
  const auto found = std::ranges::find(references, layout.reference, &GateReference::name);
  TTRACE_CHECK(found != references.end(), UsageError, "no reference is called ", layout.reference);
  return *found;
}

GateFile load_gate_file(const std::string& path) {
  return Reader(path).read();
}

std::vector<std::string> expired(const GateFile& file, Date today) {
  std::vector<std::string> sentences;
  for (const GatePermission& permission : file.permissions) {
    if (permission.expires < today) {
      sentences.push_back(
          fmt::format("{}: the permission for '{}' expired on {} (its reason: {}); repair what "
                      "differs and remove the "
                      "entry, or give it a new day",
                      permission.place,
                      permission.pattern,
                      date_text(permission.expires),
                      permission.reason));
    }
  }
  return sentences;
}

}  // namespace ttrace
