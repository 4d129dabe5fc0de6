// A command's description of itself, written once: --help, `ttrace help` and the man page print it,
// and main() runs what it names.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

namespace ttrace::cli {

struct ExitCode {
  std::string code;  // "0"
  std::string meaning;
};

struct Example {
  std::string command;
  std::string what;
};

struct Manual {
  std::string name;                      // "diff"
  std::string summary;                   // one line without a full stop
  std::vector<std::string> synopses;     // what follows "ttrace diff", one per form
  std::vector<std::string> description;  // paragraphs
  boost::program_options::options_description options;
  // Runs the command with its parsed options and returns the exit code.
  int (*run)(const boost::program_options::variables_map& values) = nullptr;
  std::vector<ExitCode> exit_codes;
  std::vector<Example> examples;
  bool takes_words = true;  // arguments without an option name
};

// Adds --help, which every command has.
void add_help_option(boost::program_options::options_description& named);

// The text of --help.
void print_help(std::ostream& out, const Manual& manual);

// The page ttrace(1) in the language of groff -man.
void print_man_page(std::ostream& out, std::span<const Manual> commands);

}  // namespace ttrace::cli
