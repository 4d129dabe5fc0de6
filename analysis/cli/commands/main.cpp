// The program `ttrace`: one table of commands. Whatever goes wrong ends with exit code 2, never 1,
// which means that the candidate diverged.
#include "analysis/cli/commands/commands.h"
#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/completion.h"
#include "analysis/cli/options/manual.h"
#include "analysis/cli/run/interrupt.h"
#include "trace/base/version.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <array>
#include <exception>
#include <iomanip>
#include <iostream>

namespace {

using ttrace::cli::Arguments;

using ttrace::cli::Manual;

constexpr std::array kCommands{
    ttrace::cli::check_manual,   ttrace::cli::gate_manual,     ttrace::cli::diff_manual,
    ttrace::cli::explain_manual, ttrace::cli::same_manual,     ttrace::cli::laws_manual,
    ttrace::cli::watch_manual,   ttrace::cli::zoom_manual,     ttrace::cli::calibrate_manual,
    ttrace::cli::infer_manual,   ttrace::cli::ls_manual,       ttrace::cli::show_manual,
    ttrace::cli::verify_manual,  ttrace::cli::timeline_manual, ttrace::cli::merge_manual,
    ttrace::cli::pack_manual,    ttrace::cli::rename_manual,   ttrace::cli::import_manual,
    ttrace::cli::doctor_manual,  ttrace::cli::skill_manual};

constexpr int kCouldNotCompare = 2;

std::vector<Manual> manuals() {
  std::vector<Manual> all;
  for (const auto& manual : kCommands) {
    all.push_back(manual());
  }
  return all;
}

// Throws UsageError that names the nearest command.
Manual command_called(const std::string& word) {
  std::vector<std::string> known{"--help", "--version", "help"};
  for (const Manual& manual : manuals()) {
    if (manual.name == word) {
      return manual;
    }
    known.push_back(manual.name);
  }
  TTRACE_THROW(
      UsageError,
      fmt::format(
          "unknown command '{}'; the nearest is '{}'", word, ttrace::cli::nearest(word, known)));
}

void print_help(std::ostream& out) {
  out << "Usage: ttrace COMMAND [options]\n\nCompares one training step of a parallel run with the "
         "same step of a trusted\nsingle-device run, and names the first tensor whose difference "
         "round-off cannot\nexplain.\n\nCommands:\n";
  for (const Manual& manual : manuals()) {
    out << "  " << std::left << std::setw(10) << manual.name << manual.summary << '\n';
  }
  out << "\n`ttrace COMMAND --help` prints the options of a command, `ttrace help --man` "
         "prints\nthe man page, `ttrace help --completion SHELL` the completion for bash, zsh or "
         "fish,\n`ttrace --version` the version.\nExit codes: 0 every tensor "
         "is within its bound, 1 a tensor diverges or is missing,\n2 the comparison was not "
         "possible.\n";
}

// `ttrace help`, `ttrace help --man`, `ttrace help --completion SHELL`, `ttrace help COMMAND`.
int help(const Arguments& arguments) {
  if (arguments.empty()) {
    print_help(std::cout);
    return 0;
  }
  if (arguments.front() == "--completion") {
    TTRACE_CHECK(arguments.size() == 2,
                 UsageError,
                 "help --completion takes the name of one shell: bash, zsh or fish");
    ttrace::cli::print_completion(std::cout, arguments[1], manuals());
    return 0;
  }
  TTRACE_CHECK(arguments.size() == 1,
               UsageError,
               fmt::format("help takes one command, --man or --completion, but {} words were given",
                           arguments.size()));
  if (arguments.front() == "--man") {
    ttrace::cli::print_man_page(std::cout, manuals());
    return 0;
  }
  ttrace::cli::print_help(std::cout, command_called(arguments.front()));
  return 0;
}

int run(const Arguments& arguments) {
  if (arguments.empty()) {
    print_help(std::cerr);
    return kCouldNotCompare;  // a script whose variable is empty must not read "within bounds"
  }
  const std::string& word = arguments.front();
  if (word == "--help" || word == "-h") {
    print_help(std::cout);
    return 0;
  }
  if (word == "help") {
    return help({arguments.begin() + 1, arguments.end()});
  }
  if (word == "--version") {
    std::cout << "ttrace " << ttrace::own_version() << '\n';
    return 0;
  }
  const Manual manual = command_called(word);
  const auto values = parse({arguments.begin() + 1, arguments.end()}, manual);
  if (values.count("help") == 0) {
    return manual.run(values);
  }
  ttrace::cli::print_help(std::cout, manual);
  return 0;
}

int report_error(const std::string& message) {
  std::cerr << "ttrace: error: " << message << std::endl;
  return kCouldNotCompare;
}

}  // namespace

int main(int argc, char** argv) {
  ttrace::cli::explain_lost_files();
  try {
    const int code = run(Arguments(argv + 1, argv + argc));
    std::cout.flush();
    TTRACE_CHECK(std::cout, FormatError, "cannot write to standard output");
    return code;
  } catch (const ttrace::cli::Interrupted& interrupted) {
    std::cerr << "ttrace: interrupted; all programs that it started have been ended" << std::endl;
    return 128 + interrupted.signal;
  } catch (const ttrace::Error& error) {
    return report_error(error.message());
  } catch (const std::exception& error) {
    return report_error(error.what());
  } catch (...) {
    return report_error("unknown exception");
  }
}
