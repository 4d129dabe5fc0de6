#include "analysis/cli/commands/rename_guess.h"

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/report_output.h"
#include "analysis/cli/options/trace_argument.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/findings/wording.h"
#include "analysis/guess/guess.h"
#include "analysis/guess/map_text.h"

#include <ttrace/error.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iostream>
#include <string>
#include <vector>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

nlohmann::json entry_json(const MapEntry& entry) {
  nlohmann::json json = {{"reference", paths_text(entry, Names::kReference)},
                         {"candidate", paths_text(entry, Names::kCandidate)},
                         {"kinds", entry.words.kinds},
                         {"certainty", entry.words.open ? "open" : name_of(entry.certainty)},
                         {"tensors", entry.tensors},
                         {"evidence", entry.evidence},
                         {"options", entry.options}};
  if (entry.error) {
    json["error"] = *entry.error;
  }
  return json;
}

void print_json(const MapGuess& guess) {
  nlohmann::json json = {{"comparable", guess.comparable},
                         {"tensors", guess.tensors},
                         {"certain", guess.certain},
                         {"likely", guess.likely},
                         {"open", guess.open},
                         {"entries", nlohmann::json::array()}};
  for (const MapEntry& entry : guess.entries.tensors) {
    json["entries"].push_back(entry_json(entry));
  }
  std::cout << json.dump(2) << '\n';
}

void print_question(const MapEntry& entry) {
  const bool of_reference = !paths_text(entry, Names::kReference).starts_with("open.");
  std::cout << fmt::format("  {} {}{} ({})\n    why: {}\n",
                           of_reference ? "reference" : "candidate",
                           paths_text(entry, of_reference ? Names::kReference : Names::kCandidate),
                           entry.words.kinds.empty() ? "" : ", kinds: " + entry.words.kinds,
                           counted(entry.tensors, "tensor"),
                           fmt::join(entry.evidence, "; "));
  if (!entry.options.empty()) {
    std::cout << "    may be: " << options_text(entry) << '\n';
  }
}

void print_summary(const MapGuess& guess, const std::string& file) {
  std::cout << fmt::format("{} of both programs: {} certain, {} likely, {} open; the map is {}\n",
                           counted(guess.tensors, "tensor"),
                           guess.certain,
                           guess.likely,
                           guess.open,
                           file);
  if (!guess.comparable) {
    std::cout << "The programs ran with other weights or data, so no values could be compared. "
                 "Give both the same weights and data, and guess again, to be certain.\n";
  }
  if (guess.open > 0) {
    std::cout << "open questions (the lines OPEN of the map; write the name of the other program, "
                 "or ~):\n";
  }
  for (const MapEntry& entry : guess.entries.tensors) {
    if (entry.words.open) {
      print_question(entry);
    }
  }
}

}  // namespace

int run_guess(const po::variables_map& values) {
  const ReportFormat format = format_of(values);
  const std::vector<std::string> folders = words_of(values);
  TTRACE_CHECK(folders.size() == 2,
               UsageError,
               fmt::format("rename --guess takes the trace of the reference and that of the "
                           "candidate, but {} given",
                           words_given(folders)));
  for (const std::string& folder : folders) {
    require_trace_folder(folder);
  }
  const MapGuess guess = guess_map(Trace::open(folders[0]), Trace::open(folders[1]));
  const auto file = text_of(values, "output");
  if (file) {
    replace_file(*file, guess.text);
  }
  if (format == ReportFormat::kJson) {
    print_json(guess);
  } else if (file) {
    print_summary(guess, *file);
  } else {
    std::cout << guess.text;
  }
  return guess.open == 0 ? 0 : 1;
}

}  // namespace ttrace::cli
