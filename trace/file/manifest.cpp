#include "trace/file/manifest.h"

#include "trace/base/durable_file.h"
#include "trace/base/dyadic_inputs.h"
#include "trace/file/file_digests.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <limits>

namespace ttrace {
namespace {

using nlohmann::json;

constexpr const char* kFormatName = "ttrace";
constexpr const char* kDigestKey = "digest";

std::string manifest_file(const std::string& directory) {
  return (std::filesystem::path(directory) / "manifest.json").string();
}

// A parsed manifest that names its path and the key in every complaint.
class ManifestReader {
 public:
  ManifestReader(std::string path, json root) : path_(std::move(path)), root_(std::move(root)) {}

  [[noreturn]] void fail(const std::string& key, const std::string& expected) const {
    const auto found = root_.find(key);
    TTRACE_THROW(FormatError,
                 path_,
                 ": the key '",
                 key,
                 "' must be ",
                 expected,
                 found == root_.end() ? ", but it is missing" : ", not " + found->dump(),
                 "; remove the trace and run the pass again");
  }

  [[nodiscard]] bool has(const std::string& key) const { return root_.contains(key); }

  [[nodiscard]] std::string text(const std::string& key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_string()) {
      fail(key, "text");
    }
    return found->get<std::string>();
  }

  [[nodiscard]] int positive_integer(const std::string& key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !is_integer_from(*found, 1) ||
        found->get<std::int64_t>() > std::numeric_limits<int>::max()) {
      fail(key, "a positive integer");
    }
    return found->get<int>();
  }

  // Returns nothing if the key is missing.
  [[nodiscard]] std::optional<std::int64_t> iteration(const std::string& key) const {
    const auto found = root_.find(key);
    if (found == root_.end()) {
      return std::nullopt;
    }
    if (!found->is_number_integer()) {
      fail(key, "an integer");
    }
    return found->get<std::int64_t>();
  }

  [[nodiscard]] std::vector<std::int64_t> ascending_integers(const std::string& key) const {
    const auto found = root_.find(key);
    std::vector<std::int64_t> values;
    bool fits = found != root_.end() && found->is_array() && !found->empty();
    if (fits) {
      for (const json& element : *found) {
        fits = fits && is_integer_from(element, values.empty() ? 0 : values.back() + 1);
        if (!fits) {
          break;
        }
        values.push_back(element.get<std::int64_t>());
      }
    }
    if (!fits) {
      fail(key, "a list of ascending integers from 0");
    }
    return values;
  }

  // Returns nothing if the key is missing.
  [[nodiscard]] std::vector<std::string> texts(const std::string& key) const {
    std::vector<std::string> result;
    const auto found = root_.find(key);
    if (found == root_.end()) {
      return result;
    }
    if (!found->is_array()) {
      fail(key, "a list of texts");
    }
    for (const json& element : *found) {
      if (!element.is_string()) {
        fail(key, "a list of texts");
      }
      result.push_back(element.get<std::string>());
    }
    return result;
  }

  [[nodiscard]] Section section(const std::string& key) const {
    const auto found = root_.find(key);
    if (found == root_.end() || !found->is_object()) {
      fail(key, "an object of texts");
    }
    Section section;
    for (const auto& [name, value] : found->items()) {
      TTRACE_CHECK(value.is_string(),
                   FormatError,
                   path_,
                   ": the key '",
                   key,
                   ".",
                   name,
                   "' must be text, not ",
                   value.dump());
      section.emplace(name, value.get<std::string>());
    }
    return section;
  }

 private:
  // Numbers with a point, even 1.0, are not integers.
  static bool is_integer_from(const json& value, std::int64_t lowest) {
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      return number < std::numeric_limits<std::int64_t>::max() &&
             static_cast<std::int64_t>(number) >= lowest;
    }
    return value.is_number_integer() && value.get<std::int64_t>() >= lowest;
  }

  std::string path_;
  json root_;
};

json parse_file(const std::string& path) {
  const std::string text = read_text_file(
      path, "; either this folder is not a trace, or rank 0 of its run never attached a session");
  json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  TTRACE_CHECK(root.is_object() && root.contains("format") && root["format"] == kFormatName,
               FormatError,
               path,
               ": this is not the manifest of a trace, which is a JSON object with \"format\": \"",
               kFormatName,
               "\"; give the folder of a trace");
  return root;
}

// Of all but the digest itself, in a form that white space and the order of keys do not change.
std::string digest_without_own(json root) {
  root.erase(kDigestKey);
  return digest_text(
      digest_of_text(root.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

// Returns whether there is a digest.
bool check_digest(const json& root, const std::string& path) {
  const auto stored = root.find(kDigestKey);
  TTRACE_CHECK(stored == root.end() || *stored == digest_without_own(root),
               FormatError,
               path,
               ": the manifest has changed since it was written: its digest differs; remove the "
               "trace and run the pass again, or remove the key '",
               kDigestKey,
               "' if you changed it on purpose");
  return stored != root.end();
}

}  // namespace

bool has_dyadic_inputs(const Manifest& manifest) {
  const auto found = manifest.data.find(kInputsKey);
  return found != manifest.data.end() && found->second == kDyadicInputs;
}

void write_manifest(const std::string& directory, const Manifest& manifest) {
  // nlohmann's ordered_json keeps the order in which a person wants to read the keys.
  nlohmann::ordered_json root;
  const auto add = [&root](const char* key, const auto& value) {
    if (!value.empty()) {
      root[key] = value;
    }
  };
  root["format"] = kFormatName;
  root["version"] = manifest.format_version;
  root["pass"] = manifest.pass;
  add("imported_from", manifest.imported_from);
  root["world_size"] = manifest.world_size;
  root["steps"] = manifest.steps;
  if (manifest.first_iteration) {
    root["first_iteration"] = *manifest.first_iteration;
  }
  root["precision"] = manifest.precision;
  add("intended", manifest.intended);
  root["layout"] = manifest.layout;
  root["model"] = manifest.model;
  root["data"] = manifest.data;
  root["versions"] = manifest.versions;
  add("numerics", manifest.numerics);
  add("untraced", manifest.untraced);
  add("roles", manifest.roles);
  add("forced_routing", manifest.forced_routing);
  add("names", manifest.names);
  add("run", manifest.run);
  // JSON cannot hold bytes that are not UTF-8; they become U+FFFD.
  root[kDigestKey] = digest_without_own(
      json::parse(root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
  write_text_file(
      manifest_file(directory),
      root.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = manifest_file(directory);
  json root = parse_file(path);
  const ManifestReader reader(path, root);
  Manifest manifest;
  manifest.format_version = reader.positive_integer("version");
  TTRACE_CHECK(manifest.format_version <= kFormatVersion,
               FormatError,
               path,
               ": a newer TTrace wrote this file (format ",
               manifest.format_version,
               ", but this program reads ",
               kFormatVersion,
               "); read it with that version");
  manifest.pass = reader.text("pass");
  manifest.imported_from = reader.has("imported_from") ? reader.text("imported_from") : "";
  manifest.world_size = reader.positive_integer("world_size");
  manifest.steps = reader.ascending_integers("steps");
  manifest.first_iteration = reader.iteration("first_iteration");
  manifest.precision = reader.text("precision");
  manifest.intended = reader.has("intended") ? reader.text("intended") : "";
  manifest.layout = reader.section("layout");
  manifest.model = reader.section("model");
  manifest.data = reader.section("data");
  manifest.versions = reader.section("versions");
  manifest.untraced = reader.texts("untraced");
  manifest.numerics = reader.has("numerics") ? reader.section("numerics") : Section();
  manifest.roles = reader.has("roles") ? reader.section("roles") : Section();
  manifest.forced_routing = reader.has("forced_routing") ? reader.text("forced_routing") : "";
  manifest.names = reader.has("names") ? reader.text("names") : "";
  manifest.run = reader.has("run") ? reader.text("run") : "";
  manifest.has_digest = check_digest(root, path);  // last: what is no manifest has its own sentence
  return manifest;
}

}  // namespace ttrace
