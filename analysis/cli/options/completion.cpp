#include "analysis/cli/options/completion.h"

#include "analysis/cli/run/process.h"
#include "trace/base/split.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

struct CompletedOption {
  std::string name;         // "format"
  std::string description;  // one line
  bool takes_value = false;
  std::vector<std::string> words;  // that the value may be; empty: names of files
};

// Of "text|json|junit[=FILE]" or "async|stream (=async)": what stands between the bars. None where
// something in capitals stands for the user's own word.
std::vector<std::string> words_of(std::string_view parameter) {
  parameter = parameter.substr(0, std::min(parameter.find('['), parameter.find(" (=")));
  const std::vector<std::string_view> words = split_at(parameter, '|');
  const bool is_list = words.size() > 1 && std::ranges::all_of(words, [](std::string_view word) {
                         return word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") == word.npos;
                       });
  return is_list ? std::vector<std::string>(words.begin(), words.end())
                 : std::vector<std::string>();
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::vector<CompletedOption> options_of(const Manual& manual) {
  std::vector<CompletedOption> options;
  for (const auto& option : manual.options.options()) {
    const bool takes_value = option->semantic()->max_tokens() > 0;
    options.push_back(
        {option->long_name(),
         one_line(option->description()),
         takes_value,
         takes_value ? words_of(option->format_parameter()) : std::vector<std::string>()});
  }
  return options;
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_of(std::span<const Manual> commands) {
  std::vector<std::string> names{"help"};
  for (const Manual& manual : commands) {
    names.push_back(manual.name);
  }
  return names;
}

void print_bash(std::ostream& out, std::span<const Manual> commands) {
  out << "# Completion of ttrace: source <(ttrace help --completion bash)\n"
         "_ttrace() {\n"
         "  local word=$2 before=$3 words=\n"
         "  if ((COMP_CWORD == 1)); then\n"
      << "    COMPREPLY=($(compgen -W "
      << shell_word(joined(names_of(commands)) + " --help --version")
      << " -- \"$word\"))\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n";
  for (const Manual& manual : commands) {
    std::string all;
    out << "    " << manual.name << ")\n      case $before in\n";
    for (const CompletedOption& option : options_of(manual)) {
      all += " --" + option.name;
      if (!option.words.empty()) {
        out << "        --" << option.name << ") words=" << shell_word(joined(option.words))
            << " ;;\n";
      } else if (option.takes_value) {
        out << "        --" << option.name << ") return ;;\n";
      }
    }
    out << "      esac\n      [[ -z $words && $word == -* ]] && words=" << shell_word(all.substr(1))
        << "\n      ;;\n";
  }
  out << "    help) words=" << shell_word(joined(names_of(commands)) + " --man --completion")
      << " ;;\n"
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "}\n"
         "complete -o bashdefault -o default -F _ttrace ttrace\n";
}

// A description within brackets of _arguments.
std::string in_brackets(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result +=
        c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return result;
}

void print_zsh(std::ostream& out, std::span<const Manual> commands) {
  out << "#compdef ttrace\n"
         "# Completion of ttrace: ttrace help --completion zsh > a file `_ttrace` in $fpath\n"
         "local -a commands=(\n  'help:print a command'\\''s options'\n";
  for (const Manual& manual : commands) {
    out << "  " << shell_word(manual.name + ":" + manual.summary) << '\n';
  }
  out << ")\n"
         "if ((CURRENT == 2)); then\n"
         "  _describe command commands\n"
         "  return\n"
         "fi\n"
         "local command=$words[2]\n"
         "shift words; ((CURRENT--))\n"
         "case $command in\n"
         "  help) _describe command commands ;;\n";
  for (const Manual& manual : commands) {
    out << "  " << manual.name << ")\n    _arguments";
    for (const CompletedOption& option : options_of(manual)) {
      std::string spec = fmt::format("*--{}[{}]", option.name, in_brackets(option.description));
      if (option.takes_value) {
        spec += option.words.empty() ? ": :_files" : fmt::format(": :({})", joined(option.words));
      }
      out << " \\\n      " << shell_word(spec);
    }
    out << " \\\n      '*: :_files'\n    ;;\n";
  }
  out << "esac\n";
}

void print_fish(std::ostream& out, std::span<const Manual> commands) {
  out << "# Completion of ttrace: ttrace help --completion fish | source\n"
         "complete -c ttrace -n __fish_use_subcommand -f -a help\n";
  for (const Manual& manual : commands) {
    out << "complete -c ttrace -n __fish_use_subcommand -f -a " << manual.name << " -d "
        << shell_word(manual.summary) << '\n';
    for (const CompletedOption& option : options_of(manual)) {
      out << "complete -c ttrace -n '__fish_seen_subcommand_from " << manual.name << "' -l "
          << option.name;
      if (!option.words.empty()) {
        out << " -x -a " << shell_word(joined(option.words));
      } else if (option.takes_value) {
        out << " -r";
      }
      out << " -d " << shell_word(option.description) << '\n';
    }
  }
}

}  // namespace

void print_completion(std::ostream& out,
                      const std::string& shell,
                      std::span<const Manual> commands) {
  if (shell == "bash") {
    print_bash(out, commands);
  } else if (shell == "zsh") {
    print_zsh(out, commands);
  } else {
    TTRACE_CHECK(shell == "fish",
                 UsageError,
                 fmt::format("--completion is '{}'; it must be bash, zsh or fish", shell));
    print_fish(out, commands);
  }
}

}  // namespace ttrace::cli
