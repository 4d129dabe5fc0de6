#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/options/warn.h"
#include "analysis/cli/run/helper_program.h"
#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process.h"
#include "analysis/cli/run/program_exception.h"
#include "analysis/cli/run/temporary_folder.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/precision.h"
#include "trace/file/trace_writer.h"

#include <ttrace/annotations.h>
#include <ttrace/error.h>

#include <fmt/core.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct Format {
  std::string_view name;
  bool has_kinds = false;  // the files say what kind of tensor each is
  bool has_boxes = false;  // they say where each lies
};

constexpr std::array<Format, 5> kFormats{{{.name = "sglang", .has_kinds = true},
                                          {.name = "msprobe", .has_kinds = true},
                                          {.name = "safetensors"},
                                          {.name = "npy"},
                                          {.name = "dcp", .has_boxes = true}}};

const Format& format_called(const std::string& word) {
  std::vector<std::string> known;
  for (const Format& format : kFormats) {
    if (format.name == word) {
      return format;
    }
    known.emplace_back(format.name);
  }
  TTRACE_THROW(UsageError,
               fmt::format("import does not know the format '{}'; it knows {}, and the nearest is "
                           "'{}'",
                           word,
                           fmt::join(known, ", "),
                           nearest(word, known)));
}

void require_paths(const std::vector<std::string>& paths) {
  TTRACE_CHECK(!paths.empty(),
               UsageError,
               "import does not know what to read; name the files or folders after the format");
  for (const std::string& path : paths) {
    std::error_code missing;
    TTRACE_CHECK(
        fs::exists(path, missing), UsageError, path, " does not exist; pass the path of the files");
  }
}

// What every option may be, before an interpreter starts.
void check_options(const Format& format, const po::variables_map& values) {
  if (const auto kind = text_of(values, "kind")) {
    TTRACE_CHECK(!format.has_kinds,
                 UsageError,
                 fmt::format("--kind does not go with {}, whose files say what every tensor is; "
                             "leave it out",
                             format.name));
    static_cast<void>(parse_kind(*kind));
  }
  for (const char* const option : {"dims", "axes"}) {
    TTRACE_CHECK(!format.has_boxes || values.count(option) == 0,
                 UsageError,
                 fmt::format("--{} does not go with {}, whose files say where every tensor lies; "
                             "leave it out",
                             option,
                             format.name));
  }
  if (const auto dims = text_of(values, "dims")) {
    static_cast<void>(Annotations::load(*dims));
  }
  if (const auto precision = text_of(values, "precision")) {
    static_cast<void>(precision_of(*precision));
  }
}

// Runs the package, and nothing that lies in the working folder, which may be an unpacked dump of
// somebody else: `-m` would look for every module there first (`-P` exists from Python 3.11 on).
constexpr auto kRunPackage =
    "import sys; sys.path = [place for place in sys.path if place]; import runpy; "
    "runpy.run_module(\"ttrace.imports\", run_name=\"__main__\", alter_sys=True)";

// PYTHONPATH without places that stand for the working folder, or lie in it.
std::string python_path() {
  const char* const own = std::getenv("PYTHONPATH");
  std::istringstream places(own == nullptr ? "" : own);
  std::vector<std::string> kept;
  for (std::string place; std::getline(places, place, ':');) {
    if (place.starts_with('/')) {
      kept.push_back(place);
    }
  }
  return fmt::format("{}", fmt::join(kept, ":"));
}

std::string command_of(const po::variables_map& values,
                       const std::vector<std::string>& words,
                       const std::string& result) {
  std::string command = fmt::format("PYTHONPATH={} {} -c {}",
                                    shell_word(python_path()),
                                    values["python"].as<std::string>(),
                                    shell_word(kRunPackage));
  const auto add = [&command](const std::string& word) { command += " " + shell_word(word); };
  for (const char* const option : {"output", "kind", "dims", "axes", "precision"}) {
    if (const auto text = text_of(values, option)) {
      add(fmt::format("--{}={}", option, *text));
    }
  }
  if (values.count("step") != 0) {
    add(fmt::format("--step={}", whole_number(values, "step", 0)));
  }
  add("--result=" + result);
  add("--");
  for (const std::string& word : words) {
    add(word);
  }
  return command;
}

[[noreturn]] void refuse_python(const std::string& python, const HelperOutcome& outcome) {
  const auto exception = first_exception(outcome.output);
  std::string cause = exception ? exception->text : outcome.output;
  while (!cause.empty() && cause.back() == '\n') {
    cause.pop_back();
  }
  cause = cause.substr(cause.rfind('\n') + 1);
  TTRACE_THROW(UsageError,
               fmt::format("`{} -m ttrace.imports` failed: {}; name an interpreter that has "
                           "torch and the package of TTrace with --python PATH; `ttrace doctor "
                           "--python PATH` says what is missing",
                           python,
                           cause.empty() ? "it printed nothing" : cause));
}

void print_result(const nlohmann::json& result, const std::string& target) {
  warn(result.at("warnings").get<std::vector<std::string>>());
  std::cout << fmt::format("{} of {}, {}, written to {}\n",
                           counted(result.at("tensors").get<std::size_t>(), "tensor"),
                           counted(result.at("ranks").get<std::size_t>(), "rank"),
                           result.at("precision").get<std::string>(),
                           target);
}

po::options_description import_options() {
  po::options_description named("Options");
  named.add_options()("output,o", text_option("TRACE"), "folder of the new trace")(
      "step",
      po::value<int>()->value_name("N"),
      "safetensors, npy, dcp: training step that the files are of (default 0, where parameters "
      "must "
      "be equal in every bit); sglang, msprobe: import this step alone")(
      "kind",
      text_option("KIND"),
      "safetensors, npy, dcp: kind of the tensors whose names do not say it; default: param, and "
      "for npy output")(
      "dims",
      text_option("FILE"),
      "annotation file that says how tensors are cut over ranks (docs/trace_format.md); default: "
      "every rank holds all of every tensor")(
      "axes",
      text_option("NAME=N,..."),
      "axes of the ranks, the slowest first: dp=2,tp=4; default: one axis, `ranks`")(
      "precision",
      text_option("P"),
      "what the program computed in; default: the coarsest type of its tensors")(
      "python",
      text_option("PATH")->default_value("python3"),
      "interpreter that has torch and the package of TTrace");
  add_help_option(named);
  return named;
}

int run_import(const po::variables_map& values) {
  const std::vector<std::string> words = words_of(values);
  TTRACE_CHECK(!words.empty(),
               UsageError,
               "import needs a format and a path: ttrace import FORMAT PATH... -o TRACE");
  const Format& format = format_called(words.front());
  require_paths({words.begin() + 1, words.end()});
  const auto target = text_of(values, "output");
  TTRACE_CHECK(target, UsageError, "import does not know where to write; pass -o TRACE");
  require_free_folder(*target);
  check_options(format, values);

  const NoteInterrupts noting;
  const TemporaryFolder folder("import");
  const std::string file = folder.path() + "/result.json";
  const HelperOutcome outcome = run_helper(command_of(values, words, file), folder.path());
  std::ifstream stream(file);
  const auto result = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!result.is_object() || (!outcome.well && !result.contains("error"))) {
    refuse_python(values["python"].as<std::string>(), outcome);
  }
  if (result.contains("error")) {
    TTRACE_THROW(UsageError, result["error"].get<std::string>());
  }
  print_result(result, *target);
  return 0;
}

}  // namespace

Manual import_manual() {
  return {
      .name = "import",
      .summary = "make a trace of another tool's files",
      .synopses = {"FORMAT PATH... -o TRACE [options]"},
      .description =
          {"Reads what other tools have written, so that `ttrace diff` can compare two programs "
           "that "
           "TTrace did not run. FORMAT is sglang (folders of SGLang's dumper), msprobe (folders "
           "with step0/rank0/dump.json), safetensors (files, or a folder of them; "
           "rank0.safetensors "
           "is rank 0's), npy (a folder of .npy files, whose paths are the names; rank0/ is rank "
           "0's) or dcp (a checkpoint of torch.distributed.checkpoint). docs/imports.md says which "
           "ids the names become.",
           "Only a dcp checkpoint, DTensors of msprobe and what SGLang's programs pass as dims say "
           "how tensors are cut over ranks. Other tensors are taken to be whole on every rank, "
           "unless --dims says otherwise. Where ranks then contradict each other, `ttrace verify` "
           "complains, and `ttrace diff` asks the values where they lie.",
           "No code of a file runs: pickles are read with torch's weights_only loader, or with one "
           "that knows nothing but the classes of a checkpoint's metadata.",
           "An imported trace has no noise passes, so `ttrace diff` judges by class defaults, "
           "which "
           "are coarse: it finds large errors. --rtol and --atol of diff set bounds of your own."},
      .options = import_options(),
      .run = run_import,
      .exit_codes = {{"0", "the trace was written"},
                     {"2",
                      "nothing was written: a file is unreadable or of another format, a library "
                      "is missing, the folder exists, or bad usage"}},
      .examples = {
          {"ttrace import safetensors model/ -o model-trace",
           "the weights of a model, from a folder with an index"},
          {"ttrace import dcp checkpoints/step-100 --step 100 -o fsdp-100",
           "a checkpoint of any layout, to compare with one of another layout"},
          {"ttrace import sglang /tmp/dumper/run1 --axes tp=4 --dims gpt.ttrace.yaml -o run1",
           "dumps of four ranks, whose cuts a file declares"}}};
}

}  // namespace ttrace::cli
