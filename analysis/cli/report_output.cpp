#include "report_output.h"

#include "command_line.h"
#include "progress.h"
#include "run_directory.h"
#include "selection_options.h"

#include <ttrace/error.h>
#include <ttrace/trace_reader.h>

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

void add_format_option(po::options_description& named) {
  named.add_options()("format",
                      po::value<std::string>()->default_value("text")->value_name("text|json"),
                      "what is printed");
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
                      "threads that compare; 0: all cores. The report does not depend on it");
}

int threads_of(const po::variables_map& values) {
  return whole_number(values, "threads", 0);
}

void add_report_options(po::options_description& named) {
  add_format_option(named);
  add_threads_option(named);
  named.add_options()("max-report",
                      po::value<int>()->default_value(20)->value_name("N"),
                      "rows in the table of findings")(
      "no-color", "never colour; by default only on a terminal without NO_COLOR");
}

ReportOptions report_options(const po::variables_map& values) {
  ReportOptions options;
  options.threads = threads_of(values);
  options.max_rows = static_cast<std::size_t>(whole_number(values, "max-report", 0));
  options.format = format_of(values);
  options.color = values.count("no-color") == 0 && terminal_with_color();
  return options;
}

std::optional<ForcedTraces> forced_traces(const std::string& run) {
  if (run.empty() || !is_complete(forced_wide(run)) || !is_complete(forced_native(run))) {
    return std::nullopt;
  }
  return ForcedTraces{Trace::open(forced_wide(run)), Trace::open(forced_native(run))};
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
      progress.show_rarely("comparing " + std::to_string(done) + " of " + std::to_string(total));
    };
  }
  const auto open = completeness == Completeness::kWhole ? Trace::open : Trace::open_partial;
  Report report = diff(open(reference), open(candidate), options);
  progress.clear();
  warn(report.warnings);
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
  if (report.diverged()) {
    return 1;
  }
  return report.partial() || report.undecided() ? 2 : 0;
}

}  // namespace ttrace::cli
