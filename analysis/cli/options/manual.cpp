#include "analysis/cli/options/manual.h"

#include "trace/base/version.h"

#include <boost/program_options.hpp>

#include <iomanip>
#include <ostream>
#include <sstream>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr std::size_t kWidth = 80;

void print_paragraph(std::ostream& out, const std::string& text) {
  std::istringstream words(text);
  std::size_t column = 0;
  for (std::string word; words >> word; column += word.size()) {
    const bool fits = column > 0 && column + 1 + word.size() <= kWidth;
    out << (column == 0 ? "" : fits ? " " : "\n") << word;
    column = fits ? column + 1 : 0;
  }
  out << '\n';
}

// Text that groff prints as it stands: a backslash, a hyphen (which it would typeset) and a control
// character at the beginning of a line are escaped.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
      result += std::string("\\&") + c;
    } else {
      result += c;
    }
  }
  return result;
}

void print_option(std::ostream& out, const po::option_description& option) {
  out << ".TP\n";
  const std::string name =
      option.canonical_display_name(po::command_line_style::allow_dash_for_short);
  const std::string long_name = "--" + option.long_name();
  if (name.size() == 2 && name != long_name) {
    out << "\\fB" << roff(name) << "\\fR, ";
  }
  out << "\\fB" << roff(long_name) << "\\fR";
  if (option.semantic()->max_tokens() > 0) {
    out << " \\fI" << roff(option.format_parameter()) << "\\fR";
  }
  out << '\n' << roff(option.description()) << '\n';
}

void print_command(std::ostream& out, const Manual& manual) {
  out << ".SS ttrace " << roff(manual.name) << '\n' << roff(manual.summary) << ".\n";
  for (const std::string& synopsis : manual.synopses) {
    out << ".PP\n\\fBttrace " << roff(manual.name) << "\\fR " << roff(synopsis) << '\n';
  }
  for (const std::string& paragraph : manual.description) {
    out << ".PP\n" << roff(paragraph) << '\n';
  }
  for (const auto& option : manual.options.options()) {
    print_option(out, *option);
  }
  out << ".PP\nExit codes:\n";
  for (const ExitCode& code : manual.exit_codes) {
    out << ".TP\n\\fB" << roff(code.code) << "\\fR\n" << roff(code.meaning) << '\n';
  }
  for (const Example& example : manual.examples) {
    out << ".PP\n" << roff(example.what) << ":\n.PP\n.EX\n  " << roff(example.command) << "\n.EE\n";
  }
}

}  // namespace

void add_help_option(po::options_description& named) {
  named.add_options()("help,h", "print this text");
}

void print_help(std::ostream& out, const Manual& manual) {
  for (std::size_t i = 0; i < manual.synopses.size(); ++i) {
    out << (i == 0 ? "Usage: " : "       ") << "ttrace " << manual.name << ' ' << manual.synopses[i]
        << '\n';
  }
  for (const std::string& paragraph : manual.description) {
    out << '\n';
    print_paragraph(out, paragraph);
  }
  out << '\n' << manual.options << "\nExit codes:\n";
  for (const ExitCode& code : manual.exit_codes) {
    out << "  " << std::left << std::setw(8) << code.code << code.meaning << '\n';
  }
  if (!manual.examples.empty()) {
    out << "\nExamples:\n";
  }
  for (const Example& example : manual.examples) {
    out << "  # " << example.what << "\n  " << example.command << '\n';
  }
}

void print_man_page(std::ostream& out, std::span<const Manual> commands) {
  out << ".\\\" `ttrace help --man` prints this page; change the option tables in analysis/cli "
         "instead.\n.TH TTRACE 1 \"\" \"ttrace "
      << own_version()
      << "\" \"User Commands\"\n.SH NAME\nttrace \\- find silent bugs of distributed training\n.SH "
         "SYNOPSIS\n\\fBttrace\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.SH DESCRIPTION\nCompares "
         "one training step of a parallel run with the same step of a trusted single\\-device run, "
         "and names the first tensor whose difference round\\-off cannot explain.\n.SH COMMANDS\n";
  for (const Manual& manual : commands) {
    print_command(out, manual);
  }
  out << ".SS ttrace help\nPrints the options of a command.\n.TP\n\\fB\\-\\-man\\fR\nprints this "
         "page\n.TP\n\\fB\\-\\-completion\\fR \\fIbash|zsh|fish\\fR\nprints a script with which "
         "the "
         "shell completes commands, options and their values\n";
}

}  // namespace ttrace::cli
