#include "analysis/cli/commands/remembered_command.h"

#include "analysis/cli/run/process.h"
#include "analysis/cli/run/run_directory.h"

#include <ttrace/error.h>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <unistd.h>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

constexpr std::string_view kFile = "/command.json";

bool is_kept(std::string_view entry) {
  constexpr std::array<std::string_view, 14> kPrefixes = {"PATH=",
                                                          "PYTHONPATH=",
                                                          "LD_LIBRARY_PATH=",
                                                          "LD_PRELOAD=",
                                                          "VIRTUAL_ENV=",
                                                          "CONDA_PREFIX=",
                                                          "OMP_",
                                                          "MKL_",
                                                          "OPENBLAS_",
                                                          "ATEN_",
                                                          "CUDA_",
                                                          "CUBLAS_",
                                                          "NVIDIA_TF32_OVERRIDE=",
                                                          "LIBTTRACE_"};
  return std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return entry.starts_with(prefix); });
}

nlohmann::json kept_variables() {
  nlohmann::json variables = nlohmann::json::object();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (is_kept(text)) {
      const std::size_t sign = text.find('=');
      variables[std::string(text.substr(0, sign))] = text.substr(sign + 1);
    }
  }
  return variables;
}

// What `read` takes from the file; nothing where there is no file.
template <class Read>
auto read_file(const std::string& trace, const Read& read)
    -> std::optional<decltype(read(nlohmann::json()))> {
  const std::string path = trace + std::string(kFile);
  std::ifstream file(path);
  if (!file) {
    return std::nullopt;
  }
  try {
    return read(nlohmann::json::parse(file));
  } catch (const nlohmann::json::exception& error) {
    TTRACE_THROW(FormatError,
                 path,
                 " does not say how the reference was made (",
                 error.what(),
                 "); pass --rerun COMMAND, or remove the file");
  }
}

}  // namespace

void remember_command(const std::string& trace,
                      const std::string& command,
                      int noise,
                      std::uint64_t memory) {
  const nlohmann::json made = {{"command", command},
                               {"folder", fs::current_path().string()},
                               {"noise", noise},
                               {"memory", memory},
                               {"environment", kept_variables()}};
  replace_file(trace + std::string(kFile), made.dump(2) + "\n");
}

std::optional<std::string> remembered_command(const std::string& trace) {
  const auto text = read_file(trace, [](const nlohmann::json& made) -> std::string {
    const auto folder = made.at("folder").get<std::string>();
    if (!fs::is_directory(folder)) {
      return "";  // the trace was made on another machine, or the folder has gone
    }
    std::string line = fmt::format("cd {}", shell_word(folder));
    for (const auto& [name, value] : made.at("environment").items()) {
      line += fmt::format(" && export {}={}", name, shell_word(value.get<std::string>()));
    }
    return fmt::format("{} && {}", line, made.at("command").get<std::string>());
  });
  return text && !text->empty() ? text : std::nullopt;
}

int remembered_noise(const std::string& trace) {
  return read_file(trace, [](const nlohmann::json& made) { return made.value("noise", 0); })
      .value_or(0);
}

std::uint64_t remembered_memory(const std::string& trace) {
  return read_file(trace,
                   [](const nlohmann::json& made) { return made.value("memory", std::uint64_t{}); })
      .value_or(0);
}

}  // namespace ttrace::cli
