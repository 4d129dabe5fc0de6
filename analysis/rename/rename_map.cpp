#include "analysis/rename/rename_map.h"

#include "analysis/align/module_path.h"
#include "trace/base/durable_file.h"
#include "trace/base/kind.h"
#include "trace/base/yaml_document.h"

#include <ttrace/error.h>

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <utility>

namespace ttrace {
namespace {

constexpr std::int64_t kMostGroups = 1'000'000;  // products with sizes of tensors fit 63 bits
constexpr auto kKindWords =
    "activations, parameters, or kinds of tensors such as [output, grad_output] are expected";

bool is_part_pattern(const std::string& part) {
  std::string letters = part;
  const auto stars = std::erase(letters, '*');
  return !part.empty() && stars <= 1 && (letters.empty() || is_canonical_path(letters)) &&
         letters.find('.') == std::string::npos;
}

// The word that the star stands for, which has at least one letter; empty without a star. Returns
// nothing if the part does not match.
std::optional<std::string> match_part(const std::string& pattern, const std::string& part) {
  const std::size_t star = pattern.find('*');
  if (star == std::string::npos) {
    return pattern == part ? std::optional<std::string>("") : std::nullopt;
  }
  const std::string head = pattern.substr(0, star);
  const std::string tail = pattern.substr(star + 1);
  if (part.size() <= head.size() + tail.size() || !part.starts_with(head) ||
      !part.ends_with(tail)) {
    return std::nullopt;
  }
  return part.substr(star, part.size() - head.size() - tail.size());
}

std::size_t stars_of(const std::vector<std::string>& parts) {
  return static_cast<std::size_t>(std::ranges::count_if(
      parts, [](const std::string& part) { return part.find('*') != std::string::npos; }));
}

// All kinds that `belongs` accepts.
std::set<Kind> kinds_where(bool (*belongs)(Kind)) {
  std::set<Kind> kinds;
  for (const KindTraits& traits : kKindTraits) {
    if (belongs(traits.kind)) {
      kinds.insert(traits.kind);
    }
  }
  return kinds;
}

bool is_activation(Kind kind) {
  const KindFamily family = family_of(kind);
  return family == KindFamily::kActivation || family == KindFamily::kActivationGradient ||
         family == KindFamily::kMessage;
}

// Sizes by name; a size of one is not a factor.
std::map<std::string, std::optional<std::int64_t>> factors_of(const DimsSpec& dims) {
  std::map<std::string, std::optional<std::int64_t>> factors;
  for (const auto& word : dims.dims) {
    for (const DimFactor& factor : word) {
      if (!factor.name.empty()) {
        factors.emplace(factor.name, factor.size);
      }
    }
  }
  return factors;
}

}  // namespace

struct RenameMap::Captures {
  std::vector<std::string> stars;
  std::vector<std::string> rest;  // parts below the pattern
  TensorId id;
};

// Reads the file, saying where in it something is wrong.
class RenameMapReader {
 public:
  RenameMapReader(const std::string& text, const std::string& origin) : document_(origin) {
    map_.origin_ = origin;
    map_.text_ = text;
    const YAML::Node root = document_.load(text);
    document_.require(root.IsMap(), root, "`tensors:` or `dims:` is expected");
    document_.for_each(
        root, {"tensors", "dims"}, [&](const std::string& key, const YAML::Node& node) {
          if (key == "dims") {
            map_.dims_ = read_dims_list(node);
            return;
          }
          document_.require(node.IsSequence(), node, "tensors must be a list of entries");
          for (const YAML::Node& entry : node) {
            map_.rules_.push_back(read_rule(entry));
          }
        });
  }

  [[nodiscard]] RenameMap result() { return std::move(map_); }

 private:
  using Pattern = RenameMap::Pattern;
  using Rule = RenameMap::Rule;

  Pattern read_pattern(const YAML::Node& node) const {
    document_.require(node.IsScalar(), node, "a path such as layers.*.mlp is expected");
    std::string text = node.Scalar();
    Pattern pattern;
    const std::size_t slash = text.find('/');
    if (slash != std::string::npos) {
      const std::string slot = text.substr(slash + 1);
      document_.require(!slot.empty() && slot.size() < 4 &&
                            std::ranges::all_of(slot, [](char c) { return c >= '0' && c <= '9'; }),
                        node,
                        fmt::format("\"{}\" is not a slot; write a number after the slash", slot));
      pattern.slot = std::stoi(slot);
      text.resize(slash);
    }
    pattern.parts = path_parts(text);
    document_.require(std::ranges::all_of(pattern.parts, is_part_pattern),
                      node,
                      fmt::format("\"{}\" is not a path; write parts of [A-Za-z0-9_-] with at most "
                                  "one * each, joined by dots",
                                  text));
    return pattern;
  }

  std::vector<Pattern> read_patterns(const YAML::Node& node) const {
    if (node.IsNull()) {
      return {};
    }
    if (!node.IsSequence()) {
      return {read_pattern(node)};
    }
    document_.require(node.size() > 1, node, "a list needs the paths of at least two parts");
    std::vector<Pattern> patterns;
    for (const YAML::Node& item : node) {
      patterns.push_back(read_pattern(item));
    }
    return patterns;
  }

  std::int64_t read_count(const YAML::Node& node, const std::string& what) const {
    std::int64_t value = 0;
    document_.require(node.IsScalar() && YAML::convert<std::int64_t>::decode(node, value) &&
                          value > 0 && value <= kMostGroups,
                      node,
                      fmt::format("{} must be a number from 1 to {}", what, kMostGroups));
    return value;
  }

  std::set<Kind> read_kinds(const YAML::Node& node) const {
    std::set<Kind> kinds;
    const auto add = [&](const YAML::Node& word) {
      document_.require(word.IsScalar(), word, kKindWords);
      if (word.Scalar() == "activations") {
        kinds.merge(kinds_where(is_activation));
      } else if (word.Scalar() == "parameters") {
        kinds.merge(kinds_where(is_of_parameter));
      } else {
        try {
          kinds.insert(parse_kind(word.Scalar()));
        } catch (const FormatError& error) {
          document_.fail(word.Mark(), error.message());
        }
      }
    };
    if (node.IsSequence()) {
      document_.require(node.size() > 0, node, kKindWords);
      for (const YAML::Node& word : node) {
        add(word);
      }
    } else {
      add(node);
    }
    return kinds;
  }

  DimsSpec read_words(const YAML::Node& node) const {
    document_.require(node.IsScalar(), node, "dims such as \"b s h\" are expected");
    DimsSpec dims;
    try {
      dims = parse_dims(node.Scalar());
    } catch (const UsageError& error) {
      document_.fail(node.Mark(), error.message());
    }
    document_.require(
        dims.replicated.empty(), node, "dims of a rename map must not name axes of ranks");
    std::set<std::string> seen;
    for (const auto& word : dims.dims) {
      for (const DimFactor& factor : word) {
        document_.require(
            factor.axes.empty(), node, "dims of a rename map must not name axes of ranks");
        document_.require(factor.size.value_or(1) > 0, node, "a size must be at least 1");
        document_.require(!factor.name.empty() || factor.size == 1,
                          node,
                          "every dimension needs a name, so that the other side can name it, too");
        document_.require(factor.name.empty() || seen.insert(factor.name).second,
                          node,
                          fmt::format("\"{}\" occurs twice; use every name once", factor.name));
      }
    }
    return dims;
  }

  // Sizes given on one side hold on both.
  void share_sizes(const YAML::Node& node, DimsPair& pair) const {
    auto sizes = factors_of(pair.reference);
    const auto others = factors_of(pair.candidate);
    for (const auto& [name, size] : others) {
      const auto found = sizes.find(name);
      document_.require(
          found != sizes.end(), node, fmt::format("\"{}\" occurs on one side only", name));
      document_.require(!size || !found->second || size == found->second,
                        node,
                        fmt::format("\"{}\" has two different sizes", name));
      found->second = size ? size : found->second;
    }
    for (const auto& [name, size] : sizes) {
      document_.require(
          others.contains(name), node, fmt::format("\"{}\" occurs on one side only", name));
    }
    for (DimsSpec* dims : {&pair.reference, &pair.candidate}) {
      for (auto& word : dims->dims) {
        int unknown = 0;
        for (DimFactor& factor : word) {
          factor.size = factor.name.empty() ? factor.size : sizes.at(factor.name);
          unknown += factor.size ? 0 : 1;
        }
        document_.require(
            unknown <= 1, node, "all factors of a dimension but one need a size, such as (n*d=64)");
      }
    }
  }

  DimsPair read_dims_pair(const YAML::Node& node) const {
    DimsPair pair;
    std::set<std::string> seen;
    document_.for_each(node,
                       {"kinds", "reference", "candidate"},
                       [&](const std::string& key, const YAML::Node& value) {
                         seen.insert(key);
                         if (key == "kinds") {
                           pair.kinds = read_kinds(value);
                         } else {
                           (key == "reference" ? pair.reference : pair.candidate) =
                               read_words(value);
                         }
                       });
    document_.require(
        seen.size() == 3, node, "an entry of dims needs kinds, reference and candidate");
    share_sizes(node, pair);
    return pair;
  }

  std::vector<DimsPair> read_dims_list(const YAML::Node& node) const {
    document_.require(node.IsSequence(), node, "dims must be a list of entries");
    std::vector<DimsPair> pairs;
    for (const YAML::Node& entry : node) {
      pairs.push_back(read_dims_pair(entry));
    }
    return pairs;
  }

  Rule read_rule(const YAML::Node& node) const {
    Rule rule;
    rule.line = node.Mark().line + 1;
    std::set<std::string> seen;
    document_.for_each(node,
                       {"reference", "candidate", "groups", "ratio", "kinds", "dims"},
                       [&](const std::string& key, const YAML::Node& value) {
                         seen.insert(key);
                         if (key == "groups") {
                           rule.fusion.groups = read_count(value, "groups");
                         } else if (key == "ratio") {
                           document_.require(value.IsSequence(), value, "ratio must be a list");
                           for (const YAML::Node& number : value) {
                             rule.fusion.ratio.push_back(read_count(number, "a ratio"));
                           }
                         } else if (key == "kinds") {
                           rule.kinds = read_kinds(value);
                         } else if (key == "dims") {
                           rule.dims = read_dims_list(value);
                         } else {
                           (key == "reference" ? rule.reference : rule.candidate) =
                               read_patterns(value);
                         }
                       });
    document_.require(seen.contains("reference") && seen.contains("candidate"),
                      node,
                      "an entry of tensors needs reference and candidate; write ~ for a side that "
                      "does not have the tensor");
    check_rule(node, rule, seen);
    return rule;
  }

  void check_rule(const YAML::Node& node, Rule& rule, const std::set<std::string>& seen) const {
    document_.require(!rule.reference.empty() || !rule.candidate.empty(),
                      node,
                      "reference and candidate cannot both be ~");
    document_.require(rule.reference.size() <= 1 || rule.candidate.size() <= 1,
                      node,
                      "only one side can have parts; the other side has the tensor that they form");
    const std::size_t parts = std::max(rule.reference.size(), rule.candidate.size());
    const bool fused = parts > 1 && std::min(rule.reference.size(), rule.candidate.size()) == 1;
    document_.require(fused || (!seen.contains("groups") && !seen.contains("ratio")),
                      node,
                      "groups and ratio need a tensor that has parts on the other side");
    if (rule.fusion.ratio.empty()) {
      rule.fusion.ratio.assign(parts, 1);
    }
    document_.require(
        rule.fusion.ratio.size() == parts,
        node,
        fmt::format(
            "ratio has {} numbers, but there are {} parts", rule.fusion.ratio.size(), parts));
    const Pattern& first = rule.reference.empty() ? rule.candidate[0] : rule.reference[0];
    for (const auto* side : {&rule.reference, &rule.candidate}) {
      for (const Pattern& pattern : *side) {
        document_.require(stars_of(pattern.parts) == stars_of(first.parts),
                          node,
                          "all paths of an entry need the same number of *, because the first * "
                          "stands for the same word in all of them, and so on");
        document_.require(pattern.slot.has_value() == first.slot.has_value(),
                          node,
                          "either all paths of an entry name a slot, or none does");
      }
    }
  }

  YamlDocument document_;
  RenameMap map_;
};

RenameMap RenameMap::load(const std::string& file) {
  return parse(read_user_file(file, "rename map"), file);
}

RenameMap RenameMap::parse(const std::string& text, const std::string& origin) {
  return RenameMapReader(text, origin).result();
}

std::optional<RenameMap::Captures> RenameMap::matched(const Pattern& pattern, const TensorId& id) {
  std::vector<std::string> parts = path_parts(id.path);
  const std::size_t count = pattern.parts.size();
  // A slot is one of the module's own tensors.
  if (parts.size() < count ||
      (pattern.slot && (*pattern.slot != id.slot || parts.size() != count))) {
    return std::nullopt;
  }
  Captures captures;
  for (std::size_t i = 0; i < count; ++i) {
    auto found = match_part(pattern.parts[i], parts[i]);
    if (!found) {
      return std::nullopt;
    }
    if (!found->empty()) {
      captures.stars.push_back(std::move(*found));
    }
  }
  captures.rest.assign(parts.begin() + static_cast<std::ptrdiff_t>(count), parts.end());
  captures.id = id;
  return captures;
}

TensorId RenameMap::filled(const Pattern& pattern, const Captures& captures) {
  TensorId id = captures.id;
  id.path.clear();
  std::size_t star = 0;
  for (const std::string& part : pattern.parts) {
    const std::size_t at = part.find('*');
    id.path.append(id.path.empty() ? "" : ".")
        .append(at == std::string::npos
                    ? part
                    : part.substr(0, at) + captures.stars.at(star++) + part.substr(at + 1));
  }
  for (const std::string& part : captures.rest) {
    id.path.append(".").append(part);
  }
  id.slot = pattern.slot.value_or(id.slot);
  return id;
}

void RenameMap::save(const std::string& file) const {
  write_text_file(file, text_);
}

Counterparts RenameMap::find(Names names, const TensorId& id) const {
  for (std::size_t number = 0; number < rules_.size(); ++number) {
    const Rule& rule = rules_[number];
    if (!rule.kinds.empty() && !rule.kinds.contains(id.kind)) {
      continue;
    }
    for (const Pattern& pattern : rule.of(names)) {
      const auto captures = matched(pattern, id);
      if (!captures) {
        continue;
      }
      Counterparts result;
      result.rule = number;
      for (const Pattern& part : rule.reference) {
        result.reference.push_back(filled(part, *captures));
      }
      for (const Pattern& part : rule.candidate) {
        result.candidate.push_back(filled(part, *captures));
      }
      return result;
    }
  }
  return {{id}, {id}, std::nullopt};
}

const DimsPair* RenameMap::dims(const Counterparts& tensor,
                                Kind kind,
                                Names names,
                                std::size_t rank) const {
  const auto fits = [&](const DimsPair& pair) {
    return pair.kinds.contains(kind) && pair.of(names).dims.size() == rank;
  };
  if (tensor.rule) {
    const auto& own = rules_[*tensor.rule].dims;
    const auto found = std::ranges::find_if(own, fits);
    if (found != own.end()) {
      return &*found;
    }
  }
  const auto found = std::ranges::find_if(dims_, fits);
  return found == dims_.end() ? nullptr : &*found;
}

bool RenameMap::has_names(std::size_t rule, Names names) const {
  return !rules_.at(rule).of(names).empty();
}

std::string RenameMap::place_of(std::size_t rule) const {
  return origin_ + ":" + std::to_string(rules_.at(rule).line);
}

}  // namespace ttrace
