#include "trace/base/annotation_field.h"
#include "trace/base/kind.h"
#include "trace/base/role.h"
#include "trace/base/yaml_document.h"

#include <ttrace/annotations.h>
#include <ttrace/error.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>

namespace ttrace {
namespace {

DimsSpec read_dims(const YamlDocument& document, const YAML::Node& node) {
  document.require(node.IsScalar(), node, "dims such as \"s b h[tp]\" are expected");
  try {
    return parse_dims(node.Scalar());
  } catch (const UsageError& error) {
    document.fail(node.Mark(), error.message());
  }
}

// A single string is slot 0; a list is by slot.
std::vector<std::optional<DimsSpec>> read_slots(const YamlDocument& document,
                                                const YAML::Node& node) {
  if (!node.IsSequence()) {
    return {read_dims(document, node)};
  }
  document.require(node.size() > 0, node, "the list needs at least one dims string");
  std::vector<std::optional<DimsSpec>> slots;
  for (const YAML::Node& item : node) {
    slots.push_back(read_dims(document, item));
  }
  return slots;
}

// A single pattern or a list of them, separated by spaces.
std::string read_patterns(const YamlDocument& document, const YAML::Node& node) {
  if (node.IsScalar()) {
    return node.Scalar();
  }
  document.require(node.IsSequence(), node, "a pattern of names or a list of them is expected");
  std::string patterns;
  for (const YAML::Node& item : node) {
    document.require(item.IsScalar(), item, "a pattern of names such as h.*.attn* is expected");
    patterns += (patterns.empty() ? "" : " ") + item.Scalar();
  }
  return patterns;
}

// The part before the first dot; `path` becomes what follows, nothing at the end.
std::string_view take_part(std::optional<std::string_view>& path) {
  const std::size_t dot = path->find('.');
  const std::string_view part = path->substr(0, dot);
  path = dot == std::string_view::npos ? std::nullopt : std::optional(path->substr(dot + 1));
  return part;
}

// Nothing means "no more parts"; an empty string could also be one empty part.
bool rest_matches(std::optional<std::string_view> pattern, std::optional<std::string_view> path) {
  if (!pattern) {
    return !path;
  }
  const std::string_view wanted = take_part(pattern);
  if (wanted == "**") {
    while (!rest_matches(pattern, path)) {
      if (!path) {
        return false;
      }
      take_part(path);
    }
    return true;
  }
  if (!path) {
    return false;
  }
  const std::string_view part = take_part(path);
  return (wanted == "*" || wanted == part) && rest_matches(pattern, path);
}

// Stars stand alone in their parts; the other parts are those of a path.
bool is_pattern(std::string_view text) {
  std::optional<std::string_view> rest = text;
  while (rest) {
    const std::string_view part = take_part(rest);
    if (part != "*" && part != "**" && !is_canonical_path(part)) {
      return false;
    }
  }
  return true;
}

// Without `axis` where `other` is empty.
void exchange_axis(DimsSpec& dims, const std::string& axis, const std::string& other) {
  for (std::vector<DimFactor>& factors : dims.dims) {
    for (DimFactor& factor : factors) {
      for (AxisUse& use : factor.axes) {
        use.axis = use.axis == axis ? other : use.axis;
      }
      std::erase_if(factor.axes, [](const AxisUse& use) { return use.axis.empty(); });
    }
  }
}

}  // namespace

Annotations Annotations::load(const std::string& file) {
  return parse(read_user_file(file, "annotation file"), file);
}

Annotations Annotations::parse(const std::string& text, const std::string& origin) {
  const YamlDocument document(origin);
  const YAML::Node root = document.load(text);
  Annotations annotations;
  if (root.IsNull()) {
    return annotations;
  }
  const auto read_size = [&](const std::string& name, const YAML::Node& node) {
    std::int64_t value = 0;
    document.require(node.IsScalar() && YAML::convert<std::int64_t>::decode(node, value),
                     node,
                     "the size of \"" + name + "\" must be a number");
    document.require(value > 0, node, "the size of \"" + name + "\" must be at least 1");
    annotations.size(name, value);
  };
  std::vector<std::string_view> keys{"path"};
  std::ranges::transform(kAnnotationFields, std::back_inserter(keys), &AnnotationField::name);
  const auto read_entry = [&](const YAML::Node& node) {
    Entry entry;
    document.for_each(node, keys, [&](const std::string& key, const YAML::Node& value) {
      if (key == "path") {
        document.require(value.IsScalar() && is_pattern(value.Scalar()),
                         value,
                         "a path must consist of parts [A-Za-z0-9_-], * or ** joined by dots");
        entry.path = value.Scalar();
      } else {
        entry.fields[key] = read_slots(document, value);
      }
    });
    document.require(!entry.path.empty(), node, "an entry of tensors needs a path");
    annotations.entries_.push_back(std::move(entry));
  };
  const auto read_role = [&](const std::string& name, const YAML::Node& node) {
    try {
      annotations.role(name, read_patterns(document, node));
    } catch (const UsageError& error) {
      document.fail(node.Mark(), error.message());
    }
  };
  document.for_each(
      root, {"sizes", "roles", "tensors"}, [&](const std::string& key, const YAML::Node& node) {
        if (key == "sizes") {
          document.for_each(node, {}, read_size);
        } else if (key == "roles") {
          document.for_each(node, {}, read_role);
        } else {
          document.require(node.IsSequence(), node, "tensors must be a list of entries");
          for (const YAML::Node& entry : node) {
            read_entry(entry);
          }
        }
      });
  return annotations;
}

Annotations& Annotations::size(const std::string& name, std::int64_t value) {
  TTRACE_CHECK(!name.empty() && value > 0,
               UsageError,
               "the size of dimension \"",
               name,
               "\" is set to ",
               value,
               "; it needs a name and a size of at least 1");
  sizes_.insert_or_assign(name, value);
  return *this;
}

Annotations& Annotations::exchange(const std::string& axis,
                                   const std::string& other,
                                   const std::string& path) {
  TTRACE_CHECK(!axis.empty() && is_pattern(path),
               UsageError,
               "axis \"",
               axis,
               "\" cannot be left out or exchanged for \"",
               path,
               "\"; give an axis, and a path with parts [A-Za-z0-9_-], * or ** joined by dots");
  exchanges_.push_back({axis, other, path});
  return *this;
}

Annotations& Annotations::without(const std::string& axis, const std::string& path) {
  return exchange(axis, "", path);
}

Annotations& Annotations::instead(const std::string& axis,
                                  const std::string& other,
                                  const std::string& path) {
  TTRACE_CHECK(!other.empty(),
               UsageError,
               "no axis is given to use instead of \"",
               axis,
               "\" for \"",
               path,
               "\"; give one, or call without()");
  return exchange(axis, other, path);
}

Annotations& Annotations::role(const std::string& name, const std::string& patterns) {
  if (find_role(name) == nullptr) {
    std::string known;
    for (const RoleTraits& traits : kRoles) {
      known.append(known.empty() ? "" : ", ").append(traits.name);
    }
    TTRACE_THROW(UsageError, "\"", name, "\" is not a role; the roles are ", known);
  }
  TTRACE_CHECK(patterns.find_first_not_of(' ') != std::string::npos,
               UsageError,
               "the role ",
               name,
               " has no pattern; give one such as h.*.attn*, or leave the role out");
  roles_.emplace(name, patterns);
  return *this;
}

Annotations& Annotations::derive(const std::string& path,
                                 std::string_view field,
                                 int slot,
                                 std::string_view dims) {
  TTRACE_CHECK(find_annotation_field(field) != nullptr && is_canonical_path(path) && slot >= 0,
               UsageError,
               "\"",
               field,
               "\" of \"",
               path,
               "\", slot ",
               slot,
               ", cannot be derived; give a key of an annotation's entry such as \"value\", a "
               "path, and a slot of at least 0");
  Slots& slots = derived_[path][std::string(field)];
  const auto index = static_cast<std::size_t>(slot);
  slots.resize(std::max(slots.size(), index + 1));
  slots[index] = parse_dims(dims);
  return *this;
}

std::optional<DimsSpec> Annotations::find_in(const Fields& fields, Kind kind, int slot) {
  std::string_view name = annotation_field(kind);
  if (is_message(kind)) {
    // Slot 0 is a module's first output, slot 1 its gradient.
    name = slot == 1 ? "grad" : "value";
    slot = 0;
  }
  auto slots = fields.find(name);
  if (slots == fields.end()) {
    slots = fields.find(find_annotation_field(name)->otherwise);
  }
  const auto index = static_cast<std::size_t>(slot);
  return slots != fields.end() && index < slots->second.size() ? slots->second[index]
                                                               : std::nullopt;
}

std::optional<DimsSpec> Annotations::find(Kind kind, const std::string& path, int slot) const {
  if (!is_placed(kind) || is_of_operator(kind)) {
    return std::nullopt;  // each rank's own, or the same on all: nothing to place
  }
  std::optional<DimsSpec> dims;
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& candidate) {
    return path_matches(candidate.path, path);
  });
  if (entry != entries_.end()) {
    dims = find_in(entry->fields, kind, slot);
  }
  const auto derived = derived_.find(path);
  if (!dims && derived != derived_.end()) {
    dims = find_in(derived->second, kind, slot);
  }
  if (!dims && kind == Kind::kOperand) {
    // The dims of an input, a weight or a gradient of the output.
    return slot == 0             ? find(Kind::kInput, path)
           : slot == kWeightSlot ? find(Kind::kParam, path + ".weight")
                                 : find(Kind::kGradOutput, path);
  }
  if (!dims) {
    return std::nullopt;
  }
  for (const Exchange& exchange : exchanges_) {
    if (path_matches(exchange.path, path)) {
      exchange_axis(*dims, exchange.axis, exchange.other);
    }
  }
  return dims;
}

Placement Annotations::placement(Kind kind,
                                 const std::string& path,
                                 int slot,
                                 std::span<const std::int64_t> local_shape,
                                 const Layout& layout) const {
  const std::optional<DimsSpec> dims = find(kind, path, slot);
  if (!dims || (kind == Kind::kScale && local_shape.empty())) {
    return whole(local_shape);
  }
  try {
    return place(*dims, local_shape, layout, sizes_);
  } catch (const UsageError& error) {
    TTRACE_THROW(UsageError,
                 "the annotation of ",
                 path,
                 " (",
                 name_of(kind),
                 ", slot ",
                 slot,
                 "): ",
                 error.message());
  }
}

bool path_matches(std::string_view pattern, std::string_view path) {
  return rest_matches(pattern, path);
}

}  // namespace ttrace
