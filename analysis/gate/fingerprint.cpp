#include "analysis/gate/fingerprint.h"

#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <glob.h>
#include <memory>
#include <ranges>
#include <set>
#include <sstream>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

constexpr std::size_t kMostNamed = 10;  // files in a sentence
constexpr auto kCommit = "commit";

std::string digest_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<std::size_t>(in.gcount()));
  }
  TTRACE_CHECK(in.eof(),
               UsageError,
               "cannot read ",
               file.string(),
               ", which a reference is made from; check its permissions");
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

void add_files(const fs::path& path, std::map<std::string, std::string>& files) {
  if (!fs::is_directory(path)) {
    files.emplace(path.string(), digest_of(path));
    return;
  }
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    // What Python compiled is no source.
    if (entry.is_regular_file() && entry.path().extension() != ".pyc") {
      files.emplace(entry.path().string(), digest_of(entry.path()));
    }
  }
}

std::vector<std::string> paths_of(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_BRACE, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

// Words of a command that are files, such as a script and its configuration.
std::vector<std::string> files_in(const std::string& command) {
  std::istringstream words(command);
  std::vector<std::string> files;
  for (std::string word; words >> word;) {
    std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
    word = word.substr(word.find('=') == std::string::npos ? 0 : word.find('=') + 1);
    std::error_code unreadable;
    if (fs::is_regular_file(word, unreadable)) {
      files.push_back(word);
    }
  }
  return files;
}

std::string listed(const std::set<std::string>& names) {
  const std::string text = fmt::format("{}", fmt::join(names | std::views::take(kMostNamed), ", "));
  return names.size() > kMostNamed ? fmt::format("{} and {} more", text, names.size() - kMostNamed)
                                   : text;
}

std::string options_text(const GateOptions& options) {
  std::string text;
  for (const auto& [name, values] : options) {
    text += fmt::format("{}--{}", text.empty() ? "" : " ", name);
    for (const std::string& value : values) {
      text += " " + value;
    }
  }
  return text.empty() ? "none" : text;
}

void add_difference(const std::string& what,
                    const std::string& made,
                    const std::string& now,
                    std::vector<std::string>& sentences) {
  if (made != now) {
    sentences.push_back(fmt::format("{} was {} and is {} now", what, made, now));
  }
}

void add_section(const std::string& what,
                 const Section& made,
                 const Section& now,
                 const std::vector<std::string>& may_differ,
                 std::vector<std::string>& sentences) {
  for (const auto& [key, value] : made) {
    const auto found = now.find(key);
    if (found != now.end() && std::ranges::find(may_differ, key) == may_differ.end()) {
      add_difference(fmt::format("{} {}", what, key), value, found->second, sentences);
    }
  }
}

}  // namespace

Fingerprint fingerprint_of(const GateReference& reference, const std::string& commit) {
  Fingerprint result{.command = reference.command, .options = reference.options, .commit = commit};
  std::vector<std::string> entries = reference.made_from;
  if (entries.empty()) {
    entries = files_in(reference.command);
  }
  for (const std::string& entry : entries) {
    if (entry == kCommit) {
      TTRACE_CHECK(
          !result.commit.empty(),
          UsageError,
          fmt::format(
              "the reference {} is made from a `commit`, but git finds no repository here; run "
              "the gate in one, or list files",
              reference.name));
      result.commit_counts = true;
      continue;
    }
    const std::vector<std::string> paths = paths_of(entry);
    TTRACE_CHECK(
        !paths.empty(),
        UsageError,
        fmt::format(
            "the reference {} is made from '{}', but no file has this name; correct `made_from`",
            reference.name,
            entry));
    for (const std::string& path : paths) {
      add_files(path, result.files);
    }
  }
  return result;
}

std::vector<std::string> differences(const Fingerprint& made, const Fingerprint& now) {
  std::vector<std::string> sentences;
  add_difference("its command", "`" + made.command + "`", "`" + now.command + "`", sentences);
  add_difference("its options", options_text(made.options), options_text(now.options), sentences);
  if (now.commit_counts) {
    add_difference("the commit", made.commit, now.commit, sentences);
  }
  std::set<std::string> changed;
  std::set<std::string> gone;
  std::set<std::string> added;
  for (const auto& [path, digest] : made.files) {
    const auto found = now.files.find(path);
    if (found == now.files.end()) {
      gone.insert(path);
    } else if (found->second != digest) {
      changed.insert(path);
    }
  }
  for (const auto& [path, digest] : now.files) {
    if (!made.files.contains(path)) {
      added.insert(path);
    }
  }
  const auto add = [&](const std::string& what, const std::set<std::string>& names) {
    if (!names.empty()) {
      sentences.push_back(fmt::format("{}: {}", what, listed(names)));
    }
  };
  add("these files changed", changed);
  add("these files are gone", gone);
  add("these files are new", added);
  if (!sentences.empty() && !now.commit_counts && made.commit != now.commit) {
    sentences.push_back(fmt::format("it was made at commit {}", made.commit));
  }
  return sentences;
}

void write_fingerprint(const std::string& file, const Fingerprint& fingerprint) {
  const nlohmann::json json = {{"command", fingerprint.command},
                               {"options", fingerprint.options},
                               {"commit", fingerprint.commit},
                               {"files", fingerprint.files}};
  write_text_file(file, json.dump(2) + "\n");
}

Fingerprint read_fingerprint(const std::string& file) {
  try {
    const nlohmann::json json = nlohmann::json::parse(
        read_text_file(file, "; make the reference again: ttrace gate --renew"));
    return {.command = json.at("command"),
            .options = json.at("options").get<GateOptions>(),
            .commit = json.at("commit"),
            .files = json.at("files").get<std::map<std::string, std::string>>()};
  } catch (const nlohmann::json::exception& error) {
    TTRACE_THROW(FormatError,
                 file,
                 " does not say what the reference was made from (",
                 error.what(),
                 "); make the reference again: ttrace gate --renew");
  }
}

std::vector<std::string> differences(const Manifest& made,
                                     const Manifest& now,
                                     const std::vector<std::string>& may_differ) {
  std::vector<std::string> sentences;
  add_section("the version of", made.versions, now.versions, may_differ, sentences);
  add_section("model:", made.model, now.model, may_differ, sentences);
  add_section("data:", made.data, now.data, may_differ, sentences);
  return sentences;
}

}  // namespace ttrace
