#include "report_output.h"

#include "analysis/diff.h"
#include "command_line.h"
#include "progress.h"

#include <ttrace/error.h>
#include <ttrace/trace_reader.h>

#include <chrono>
#include <cstdlib>
#include <unistd.h>

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

}  // namespace

void add_report_options(po::options_description& named) {
  named.add_options()("threads",
                      po::value<int>()->default_value(0)->value_name("N"),
                      "threads that compare; 0: all cores. The report does not depend on it")(
      "format",
      po::value<std::string>()->default_value("text")->value_name("text|json"),
      "what is printed")("max-report",
                         po::value<int>()->default_value(20)->value_name("N"),
                         "rows in the table of findings")(
      "no-color", "never colour; by default only on a terminal without NO_COLOR");
}

ReportOptions report_options(const po::variables_map& values) {
  ReportOptions options;
  options.threads = whole_number(values, "threads", 0);
  options.max_rows = static_cast<std::size_t>(whole_number(values, "max-report", 0));
  const auto& format = values["format"].as<std::string>();
  TTRACE_CHECK(format == "text" || format == "json",
               UsageError,
               "--format is '",
               format,
               "'; it must be text or json");
  options.format = format == "json" ? ReportFormat::kJson : ReportFormat::kText;
  options.color = values.count("no-color") == 0 && terminal_with_color();
  return options;
}

Report compare(const std::string& reference,
               const std::string& candidate,
               int threads,
               ProgressLine& progress) {
  DiffOptions options;
  options.threads = threads;
  if (progress.visible()) {
    using Clock = std::chrono::steady_clock;
    options.progress = [&progress, shown = Clock::time_point()](std::size_t done,
                                                                std::size_t total) mutable {
      if (const auto now = Clock::now(); now - shown > std::chrono::milliseconds(50)) {
        progress.show("comparing " + std::to_string(done) + " of " + std::to_string(total));
        shown = now;
      }
    };
  }
  Report report = diff(Trace::open(reference), Trace::open(candidate), options);
  progress.clear();
  return report;
}

void write_report(std::ostream& out, const Report& report, const ReportOptions& options) {
  if (options.format == ReportFormat::kJson) {
    write_json(out, report);
  } else {
    write_text(out, report, {.color = options.color, .max_rows = options.max_rows});
  }
}

int exit_code(const Report& report) {
  return report.diverged() ? 1 : 0;
}

}  // namespace ttrace::cli
