#include "analysis/cli/options/report_output.h"

#include "analysis/cli/options/command_line.h"
#include "analysis/cli/run/run_directory.h"
#include "analysis/reports/report_writers.h"
#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ranges>
#include <sstream>
#include <string_view>
#include <sys/ioctl.h>
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

// 0 where stdout is no terminal.
std::size_t width_of_terminal() {
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col
                                                                                    : 0;
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
  return fmt::format("{}",
                     fmt::join(kFormats | std::views::transform(&FormatName::name), separator));
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
          system_error_text(errno)));
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
  named.add_options()(
      "format", text_option("text|json")->default_value("text"), "format of what is printed");
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
                      "number of rows in the table of findings that --details prints")(
      "details", "every number, all that is wrong, and all notes")(
      "no-color",
      "never use colour; the default is colour on a terminal, unless NO_COLOR is set or TERM is "
      "dumb")(
      "label",
      text_option("NAME"),
      "prefix of the test names in a JUnit report, by which a CI server distinguishes several "
      "reports of one job");
}

ReportOptions report_options(const po::variables_map& values) {
  ReportOptions options;
  options.threads = threads_of(values);
  options.max_rows = static_cast<std::size_t>(whole_number(values, "max-report", 0));
  if (values.count("format") != 0) {
    read_formats(values["format"].as<std::vector<std::string>>(), options);
  }
  options.details = values.count("details") != 0;
  options.color = values.count("no-color") == 0 && terminal_with_color();
  options.label = text_of(values, "label").value_or("");
  return options;
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
           {.color = options.color,
            .details = options.details,
            .max_rows = options.max_rows,
            .width = width_of_terminal(),
            .run = options.run},
           options.label);
  std::cout.flush();
  for (const ReportFile& file : options.files) {
    std::ostringstream text;
    write_as(text,
             file.format,
             report,
             {.details = true, .max_rows = options.max_rows, .run = options.run},
             options.label);
    replace_file(file.path, text.str());
  }
}

int exit_code(const Report& report) {
  if (report.diverged()) {
    return 1;
  }
  return report.partial() || report.undecided() || !report.why_not_judged().empty() ? 2 : 0;
}

}  // namespace ttrace::cli
