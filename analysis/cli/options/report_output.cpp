#include "analysis/cli/options/report_output.h"

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/options/selection_options.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/infer/settle.h"
#include "analysis/reports/report_writers.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace fs = std::filesystem;
namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

bool terminal_with_color() {
  // NO_COLOR as on no-color.org: present and not empty.
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         terminal != nullptr && std::string(terminal) != "dumb";
}

struct FormatName {
  std::string_view name;
  ReportFormat format = ReportFormat::kText;
};

constexpr std::array kFormats = {FormatName{"text", ReportFormat::kText},
                                 FormatName{"html", ReportFormat::kHtml},
                                 FormatName{"json", ReportFormat::kJson},
                                 FormatName{"jsonl", ReportFormat::kJsonLines},
                                 FormatName{"junit", ReportFormat::kJunit},
                                 FormatName{"markdown", ReportFormat::kMarkdown},
                                 FormatName{"sarif", ReportFormat::kSarif}};

// "text|json|junit"
std::string format_names(std::string_view separator) {
  std::string names;
  for (const FormatName& format : kFormats) {
    names.append(names.empty() ? "" : separator).append(format.name);
  }
  return names;
}

ReportFormat report_format(const std::string& value, const std::string& name) {
  const auto* const found = std::ranges::find(kFormats, name, &FormatName::name);
  TTRACE_CHECK(found != kFormats.end(),
               UsageError,
               fmt::format("--format is '{}'; it must be one of {}, or one of them with a file: "
                           "junit=FILE",
                           value,
                           format_names(", ")));
  return found->format;
}

// Leaves nothing behind; what is at `path` stays.
void probe(const std::string& path) {
  TTRACE_CHECK(!fs::is_directory(path),
               UsageError,
               fmt::format("--format needs a file, but {} is a folder", path));
  const std::string temporary = path + ".tmp";
  errno = 0;
  const bool opened = std::ofstream(temporary, std::ios::app).is_open();
  TTRACE_CHECK(
      opened,
      UsageError,
      fmt::format(
          "cannot write {} for --format: {}; name a file in a folder that exists and is writable",
          path,
          std::strerror(errno)));
  fs::remove(temporary);
}

// "FORMAT" is printed, "FORMAT=FILE" written; the text is printed where nothing else is.
void read_formats(const std::vector<std::string>& values, ReportOptions& options) {
  const std::string* printed = nullptr;
  for (const std::string& value : values) {
    const std::size_t sign = value.find('=');
    const ReportFormat format = report_format(value, value.substr(0, sign));
    if (sign == std::string::npos) {
      TTRACE_CHECK(printed == nullptr,
                   UsageError,
                   fmt::format("--format {0} and --format {1} would both be printed; give one of "
                               "them a file: {1}=FILE",
                               *printed,
                               value));
      printed = &value;
      options.format = format;
      continue;
    }
    const std::string path = value.substr(sign + 1);
    TTRACE_CHECK(!path.empty(),
                 UsageError,
                 fmt::format("--format is '{}', but no file follows the =", value));
    for (const ReportFile& other : options.files) {
      TTRACE_CHECK(other.path != path,
                   UsageError,
                   fmt::format("--format names the file {} twice; name each file once", path));
    }
    options.files.push_back({format, path});
  }
}

void write_as(std::ostream& out,
              ReportFormat format,
              const Report& report,
              const TextOptions& text,
              const std::string& label) {
  switch (format) {
    case ReportFormat::kText:
      return write_text(out, report, text);
    case ReportFormat::kHtml:
      return write_html(out, report);
    case ReportFormat::kJson:
      return write_json(out, report);
    case ReportFormat::kJsonLines:
      return write_json_lines(out, report);
    case ReportFormat::kJunit:
      return write_junit(out, report, label);
    case ReportFormat::kMarkdown:
      return write_markdown(out, report, text.max_rows);
    case ReportFormat::kSarif:
      return write_sarif(out, report);
  }
}

}  // namespace

void add_format_option(po::options_description& named) {
  named.add_options()("format",
                      po::value<std::string>()->default_value("text")->value_name("text|json"),
                      "format of what is printed");
}

ReportFormat format_of(const po::variables_map& values) {
  const auto& format = values["format"].as<std::string>();
  TTRACE_CHECK(format == "text" || format == "json",
               UsageError,
               "--format is '",
               format,
               "'; it must be text or json");
  return format == "json" ? ReportFormat::kJson : ReportFormat::kText;
}

void add_threads_option(po::options_description& named) {
  named.add_options()("threads",
                      po::value<int>()->default_value(0)->value_name("N"),
                      "number of threads (0: all cores); the report does not depend on it");
}

int threads_of(const po::variables_map& values) {
  return whole_number(values, "threads", 0);
}

void add_report_options(po::options_description& named) {
  named.add_options()(
      "format",
      po::value<std::vector<std::string>>()->value_name(format_names("|") + "[=FILE]"),
      "format of what is printed or, with =FILE, written to FILE; repeatable; default: print text");
  add_threads_option(named);
  named.add_options()("max-report",
                      po::value<int>()->default_value(20)->value_name("N"),
                      "number of rows in the table of findings")(
      "no-color",
      "never use colour; the default is colour on a terminal, unless NO_COLOR is set or TERM is "
      "dumb")(
      "label",
      po::value<std::string>()->value_name("NAME"),
      "begins the names of the tests of a JUnit report, so that a CI server tells the reports of "
      "one job apart");
}

ReportOptions report_options(const po::variables_map& values) {
  ReportOptions options;
  options.threads = threads_of(values);
  options.max_rows = static_cast<std::size_t>(whole_number(values, "max-report", 0));
  if (values.count("format") != 0) {
    read_formats(values["format"].as<std::vector<std::string>>(), options);
  }
  options.color = values.count("no-color") == 0 && terminal_with_color();
  if (values.count("label") != 0) {
    options.label = values["label"].as<std::string>();
  }
  return options;
}

std::optional<ForcedTraces> forced_traces(const std::string& run) {
  if (run.empty() || !is_complete(forced_wide(run)) || !is_complete(forced_native(run))) {
    return std::nullopt;
  }
  return ForcedTraces{Trace::open(forced_wide(run)), Trace::open(forced_native(run))};
}

std::vector<std::string> remarks_of_passes(const std::string& run) {
  std::vector<std::string> remarks;
  const auto add = [&](const char* effect, const char* pass, const std::string& folder) {
    const std::string log = fmt::format("{}/logs/{}.log", run, pass);
    if (std::filesystem::exists(log) && !is_complete(folder)) {
      remarks.push_back(fmt::format(
          "{}, because the pass {} has no complete trace; {} says why", effect, pass, log));
    }
  };
  if (!run.empty()) {
    const char* const operators = "operators are not checked one by one";
    add(operators, "forced-wide", forced_wide(run));
    add(operators, "forced-native", forced_native(run));
    add("nothing is held against FP64", "golden", golden_pass(run));
  }
  return remarks;
}

std::optional<Trace> golden_trace(const std::string& run) {
  if (run.empty() || !is_complete(golden_pass(run))) {
    return std::nullopt;
  }
  return Trace::open(golden_pass(run));
}

Report compare(const std::string& reference,
               const std::string& candidate,
               DiffOptions options,
               ProgressLine& progress,
               Completeness completeness) {
  if (progress.visible()) {
    options.progress = [&progress](std::size_t done, std::size_t total) {
      progress.show_rarely(fmt::format("comparing {} of {}", done, total));
    };
  }
  const auto open = completeness == Completeness::kWhole ? Trace::open : Trace::open_partial;
  const Trace right = open(reference);
  Trace placed = open(candidate);
  const std::vector<SettledClass> settled = settle_placements(right, placed, options.threads);
  Report report = diff(right, placed, options);
  for (const SettledClass& tensors : settled) {
    report.inferred.push_back(tensors.sentence());
  }
  progress.clear();
  warn(report.warnings);
  return report;
}

void require_writable(const ReportOptions& options) {
  for (const ReportFile& file : options.files) {
    probe(file.path);
  }
}

void write_report(const Report& report, const ReportOptions& options) {
  write_as(std::cout,
           options.format,
           report,
           {.color = options.color, .max_rows = options.max_rows},
           options.label);
  std::cout.flush();
  for (const ReportFile& file : options.files) {
    std::ostringstream text;
    write_as(
        text, file.format, report, {.color = false, .max_rows = options.max_rows}, options.label);
    replace_file(file.path, text.str());
  }
}

int exit_code(const Report& report) {
  if (report.diverged()) {
    return 1;
  }
  return report.partial() || report.undecided() ? 2 : 0;
}

}  // namespace ttrace::cli
