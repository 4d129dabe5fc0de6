#include "analysis/cli/commands/gate_checks.h"

#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/run/run_directory.h"
#include "trace/file/manifest.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

// Options of a check that the gate sets itself, or whose place is elsewhere in its file.
constexpr std::array kOwn = {"reference",
                             "candidate",
                             "output",
                             "rerun",
                             "format",
                             "estimate",
                             "print-jobs",
                             "jobs",
                             "help",
                             "allow-failed",
                             "allow-missing"};

Arguments arguments_of(const GateOptions& options) {
  Arguments arguments;
  for (const auto& [name, values] : options) {
    if (values.empty()) {
      arguments.push_back("--" + name);
    }
    for (const std::string& value : values) {
      arguments.insert(arguments.end(), {"--" + name, value});
    }
  }
  return arguments;
}

void require_valid(const std::string& whose, const GateOptions& options) {
  for (const auto& [name, values] : options) {
    TTRACE_CHECK(std::ranges::find(kOwn, name) == kOwn.end(),
                 UsageError,
                 fmt::format("{} has the option {}, which the gate sets itself, or its list "
                             "`allow`; remove it from `check`",
                             whose,
                             name));
  }
  try {
    static_cast<void>(parse(arguments_of(options), check_manual()));
  } catch (const UsageError& error) {
    TTRACE_THROW(UsageError, whose, ": ", error.message());
  }
}

std::string new_folder_of(const GateFile& file, const GateReference& reference) {
  return folder_of(file, reference) + ".new";
}

// Why a check whose report does not decide could not compare.
void add_problem(const std::string& output, LayoutResult& result) {
  if (result.problems.empty()) {
    const std::string error = error_in(fmt::format("{}/{}.err", output, result.name));
    result.problems.push_back(error.empty() ? "the verdict covers only a part; see " + output +
                                                  "/" + result.name + ".txt"
                                            : error);
  }
}

// The reference does not stand for what the candidate runs with today.
void check_versions(const GateFile& file,
                    const GateLayout& layout,
                    const std::string& output,
                    LayoutResult& result) {
  const std::string candidate = fmt::format("{}/{}/candidate", output, layout.name);
  if (!fs::exists(candidate + "/manifest.json")) {
    return;
  }
  const GateReference& reference = file.reference_of(layout);
  const auto sentences = differences(read_manifest(folder_of(file, reference) + "/reference"),
                                     read_manifest(candidate),
                                     reference.may_differ);
  if (!sentences.empty()) {
    result.outcome = Outcome::kStale;
    result.problems = sentences;
  }
}

}  // namespace

void require_valid_options(const GateFile& file) {
  for (const GateReference& reference : file.references) {
    require_valid("the reference " + reference.name, reference.options);
  }
  for (const GateLayout& layout : file.layouts) {
    require_valid("the layout " + layout.name, layout.options);
  }
}

std::string folder_of(const GateFile& file, const GateReference& reference) {
  return file.store + "/" + reference.name;
}

bool is_stored(const GateFile& file, const GateReference& reference) {
  return fs::exists(folder_of(file, reference) + "/reference/manifest.json");
}

Task making(const GateFile& file, const GateReference& reference, const std::string& output) {
  const std::string folder = new_folder_of(file, reference);
  fs::create_directories(file.store);
  fs::remove_all(folder);  // of a gate that was killed
  Task task{.name = "reference " + reference.name,
            .output = fmt::format("{}/reference-{}.txt", output, reference.name),
            .errors = fmt::format("{}/reference-{}.err", output, reference.name)};
  Arguments arguments{"check",
                      "--reference",
                      reference.command,
                      "--candidate",
                      reference.command,
                      "--output",
                      folder};
  const Arguments options = arguments_of(reference.options);
  arguments.insert(arguments.end(), options.begin(), options.end());
  task.work = this_program(std::move(arguments));
  return task;
}

void keep_reference(const GateFile& file,
                    const GateReference& reference,
                    const Fingerprint& fingerprint) {
  const std::string made = new_folder_of(file, reference);
  const std::string kept = folder_of(file, reference);
  // Layouts bring candidates of their own, so that a CI server need not store this one.
  for (const std::string& folder : {made + "/candidate", forced_wide(made), forced_native(made)}) {
    fs::remove_all(folder);
  }
  write_fingerprint(made + "/made_from.json", fingerprint);
  fs::remove_all(kept);
  fs::rename(made, kept);
}

Task checking(const GateFile& file, const GateLayout& layout, const std::string& output) {
  const GateReference& reference = file.reference_of(layout);
  const std::string own = output + "/" + layout.name;
  Arguments arguments{"check",
                      "--reference",
                      folder_of(file, reference) + "/reference",
                      "--rerun",
                      reference.command,
                      "--candidate",
                      layout.command,
                      "--output",
                      own,
                      "--jobs",
                      "1",  // the gate's own --jobs says how many checks there are
                      "--format",
                      "text",
                      "--format",
                      "html=" + own + ".html",
                      "--format",
                      "markdown=" + own + ".md",
                      "--format",
                      fmt::format("junit={}/junit/{}.xml", output, layout.name),
                      "--label",
                      layout.name,
                      "--format",
                      fmt::format("sarif={}/sarif/{}.sarif", output, layout.name)};
  const Arguments options = arguments_of(layout.options);
  arguments.insert(arguments.end(), options.begin(), options.end());
  for (const GatePermission& permission : file.permissions) {
    if (permission.concerns(layout.name)) {
      arguments.insert(arguments.end(), {permission.option(), permission.pattern});
    }
  }
  return {.name = layout.name,
          .work = this_program(std::move(arguments)),
          .output = own + ".txt",
          .errors = own + ".err"};
}

LayoutResult result_of(const GateFile& file,
                       const GateLayout& layout,
                       const std::string& output,
                       const TaskEnd& end) {
  LayoutResult result{.name = layout.name,
                      .command = layout.command,
                      .reference = layout.reference,
                      .outcome = end.exit_code == 0   ? Outcome::kWithinBound
                                 : end.exit_code == 1 ? Outcome::kDiverged
                                                      : Outcome::kNotCompared,
                      .seconds = end.seconds};
  if (const std::string own = output + "/" + layout.name; fs::exists(own + "/report.json")) {
    read_report(own, result);
  }
  if (end.exit_code > 2) {
    result.problems.push_back(fmt::format("its check was ended by signal {}", end.exit_code - 128));
  } else if (result.outcome == Outcome::kNotCompared) {
    add_problem(output, result);
  }
  check_versions(file, layout, output, result);
  return result;
}

std::string error_in(const std::string& file) {
  constexpr std::string_view kHead = "ttrace: error: ";
  std::ifstream in(file);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const std::string text = buffer.str();
  const std::size_t found = text.find(kHead);
  const std::string error = found == std::string::npos ? text : text.substr(found + kHead.size());
  return error.substr(0, error.find_last_not_of('\n') + 1);
}

std::map<std::string, std::uint64_t> read_memory(const GateFile& file) {
  std::ifstream in(file.store + "/memory.json");
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, false);
  std::map<std::string, std::uint64_t> memory;
  if (!json.is_object()) {
    return memory;
  }
  for (const auto& [name, bytes] : json.items()) {
    if (bytes.is_number_unsigned()) {
      memory[name] = bytes;
    }
  }
  return memory;
}

void write_memory(const GateFile& file, const std::map<std::string, std::uint64_t>& memory) {
  try {
    replace_file(file.store + "/memory.json", nlohmann::json(memory).dump(2) + "\n");
  } catch (const FormatError& error) {
    // The next gate will run its layouts one by one.
    log(LogLevel::kWarning, error.message());
  }
}

}  // namespace ttrace::cli
