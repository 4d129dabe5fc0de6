#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/run/helper_program.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/temporary_folder.h"
#include "trace/base/version.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr std::chrono::seconds kLongest{120};  // that a program may take: torch is slow to import
constexpr auto kVariable = "TTRACE_DOCTOR";
constexpr auto kValue = "arrived";

// One line of the answer; a remedy is given where something is missing.
struct Diagnosed {
  bool is_well = true;
  std::string what;
  std::string answer;
  std::string remedy = {};
};

HelperOutcome output_of(const std::string& command, const std::string& folder) {
  return run_helper(command, folder, {{kVariable, kValue}}, kLongest);
}

// Lines that say something, not only dashes.
std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (std::ranges::any_of(line, [](unsigned char c) { return std::isalnum(c) != 0; })) {
      lines.push_back(line);
    }
  }
  return lines;
}

bool is_in_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::error_code missing;
    if (fs::exists(fs::path(folder) / program, missing)) {
      return true;
    }
  }
  return false;
}

std::string own_path() {
  std::error_code unknown;
  const fs::path path = fs::read_symlink("/proc/self/exe", unknown);
  return unknown ? "ttrace" : path.string();
}

// Prints one line of JSON, whatever fails.
constexpr auto kAskPython = R"(
import json, sys
found = {"python": sys.version.split()[0], "executable": sys.executable}
try:
    import torch
    found["torch"] = torch.__version__
    found["cuda"] = torch.cuda.is_available()
    import ttrace
    from ttrace import _library
    found["package"] = ttrace.__path__[0]
    found["library"] = str(_library.library_path())
except Exception as error:
    found["error"] = f"{type(error).__name__}: {error}"
print("TTRACE_DOCTOR " + json.dumps(found))
)";

std::vector<Diagnosed> ask_python(const std::string& python, const std::string& folder) {
  const std::string script = folder + "/ask.py";
  std::ofstream(script) << kAskPython;
  const HelperOutcome ended = output_of(fmt::format("{} '{}'", python, script), folder);
  const std::vector<std::string> lines = lines_of(ended.output);
  const std::string line = lines.empty() ? "" : lines.back();
  const std::string mark = std::string(kVariable) + " ";
  if (!line.starts_with(mark)) {
    return {{false,
             "python",
             fmt::format("`{}` does not run: {}", python, line.empty() ? "no output" : line),
             "name the interpreter of your training program: --python PATH"}};
  }
  const auto found = nlohmann::json::parse(line.substr(mark.size()));
  const auto text = [&](const char* key) { return found.value(key, std::string()); };
  std::vector<Diagnosed> result{
      {true, "python", fmt::format("{} at {}", text("python"), text("executable"))}};
  const std::string error = text("error");
  if (!found.contains("torch")) {
    result.push_back({false, "torch", error, "install torch for this interpreter"});
    return result;
  }
  result.push_back(
      {true,
       "torch",
       fmt::format("{}, {}", text("torch"), found.value("cuda", false) ? "with a GPU" : "no GPU")});
  if (!error.empty()) {
    result.push_back({false,
                      "package",
                      error,
                      "install the package for this interpreter: `pip install .` in ttrace's "
                      "sources; C++ programs do not need it"});
    return result;
  }
  result.push_back({true, "package", text("package")});
  result.push_back({true, "library", text("library") + ", loads into this torch"});
  return result;
}

// A command to which a program is appended.
struct Launcher {
  std::string name;
  std::string command;
};

std::vector<Launcher> usual_launchers() {
  std::vector<Launcher> found;
  for (const Launcher& launcher :
       {Launcher{"torchrun", "torchrun --standalone --nproc-per-node 1 --no-python"},
        Launcher{"mpirun", "mpirun -np 1"}}) {
    if (is_in_path(launcher.name)) {
      found.push_back(launcher);
    }
  }
  return found;
}

Diagnosed try_launcher(const Launcher& launcher, const std::string& folder) {
  const HelperOutcome ended =
      output_of(fmt::format("{} printenv {}", launcher.command, kVariable), folder);
  if (ended.output.find(kValue) != std::string::npos) {
    return {true, launcher.name, "hands variables to its ranks"};
  }
  if (const auto lines = lines_of(ended.output); !ended.well && !lines.empty()) {
    return {false,
            launcher.name,
            fmt::format("`{}` failed: {}", launcher.command, lines.front()),
            "run this command yourself until it works"};
  }
  return {false,
          launcher.name,
          "does not hand variables to its ranks, so no rank would know that it is traced",
          "make it pass on what begins with TTRACE_ (srun: --export=ALL; mpirun: -x; ssh and "
          "containers have options of their own)"};
}

// Variables of an earlier pass that were exported are not used by `check`, but by a program that
// starts without it.
std::optional<Diagnosed> leftover_variables() {
  if (const char* const pass = std::getenv("TTRACE_PASS")) {
    return Diagnosed{false,
                     "environment",
                     fmt::format("TTRACE_PASS is set to '{}', so every program that starts from "
                                 "this shell is traced",
                                 pass),
                     "unset TTRACE_PASS"};
  }
  return std::nullopt;
}

void print(const Diagnosed& one) {
  std::cout << fmt::format(
      "{:<8} {:<12} {}\n", one.is_well ? "ok" : "MISSING", one.what, one.answer);
  if (!one.is_well) {
    std::cout << fmt::format("{:<21} -> {}\n", "", one.remedy);
  }
}

int run_doctor(const po::variables_map& values) {
  const NoteInterrupts noting;
  const TemporaryFolder folder("doctor");
  bool is_well = true;
  const auto say = [&](const Diagnosed& one) {
    print(one);
    std::cout.flush();
    is_well = is_well && one.is_well;
  };
  say({true, "program", fmt::format("ttrace {} at {}", own_version(), own_path())});
  for (const Diagnosed& one : ask_python(values["python"].as<std::string>(), folder.path())) {
    say(one);
  }
  std::vector<Launcher> launchers = usual_launchers();
  if (values.count("launcher") != 0) {
    launchers.clear();
    for (const auto& command : values["launcher"].as<std::vector<std::string>>()) {
      launchers.push_back({command.substr(0, command.find(' ')), command});
    }
  }
  for (const Launcher& launcher : launchers) {
    say(try_launcher(launcher, folder.path()));
  }
  if (const auto leftover = leftover_variables()) {
    say(*leftover);
  }
  return is_well ? 0 : 1;
}

}  // namespace

Manual doctor_manual() {
  po::options_description named("Options");
  named.add_options()("python",
                      text_option("PATH")->default_value("python3"),
                      "interpreter that runs your training program")(
      "launcher",
      po::value<std::vector<std::string>>()->value_name("COMMAND"),
      "command that starts your ranks, up to where the program would stand (\"srun -n 2\"); "
      "repeatable; default: torchrun and mpirun where they are installed");
  add_help_option(named);
  return {.name = "doctor",
          .summary = "find out whether this machine can trace programs",
          .synopses = {"[options]"},
          .description = {"Says where the program, the library and the Python package are, for "
                          "which torch they were built, and whether launchers hand the variables "
                          "to their ranks by which a check tells a program what to trace."},
          .options = named,
          .run = run_doctor,
          .exit_codes = {{"0", "nothing is missing"},
                         {"1", "something is missing; a line says what to do"},
                         {"2", "bad usage"}},
          .examples = {{"ttrace doctor --python .venv/bin/python --launcher 'srun -n 2'",
                        "ask about a virtual environment and a cluster's launcher"}},
          .takes_words = false};
}

}  // namespace ttrace::cli
