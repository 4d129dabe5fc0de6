// How a report is printed and written, for `check` and `diff`.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace ttrace::cli {

enum class ReportFormat { kText, kHtml, kJson, kJsonLines, kJunit, kMarkdown, kSarif };

struct ReportFile {
  ReportFormat format = ReportFormat::kText;
  std::string path;
};

struct ReportOptions {
  int threads = 0;                            // 0: all cores
  ReportFormat format = ReportFormat::kText;  // of what is printed
  std::vector<ReportFile> files;              // also written
  std::size_t max_rows = 20;
  bool details = false;
  bool color = false;
  std::string run = {};    // the folder of the check; empty: two traces are compared
  std::string label = {};  // of the tests of a JUnit report
};

// --format text|json of commands that print no report; format_of throws UsageError.
void add_format_option(boost::program_options::options_description& named);
[[nodiscard]] ReportFormat format_of(const boost::program_options::variables_map& values);

// --threads; threads_of throws UsageError.
void add_threads_option(boost::program_options::options_description& named);
[[nodiscard]] int threads_of(const boost::program_options::variables_map& values);

// --threads, --format (several, each with a file or without), --max-report, --no-color,
// --label
void add_report_options(boost::program_options::options_description& named);
// Throws UsageError. Colour only where stdout is a terminal that is not
// dumb, and NO_COLOR is not set.
[[nodiscard]] ReportOptions report_options(const boost::program_options::variables_map& values);

// Throws UsageError if a file asked for cannot be written: a check runs for minutes before it
// is.
void require_writable(const ReportOptions& options);

// Prints the report to stdout and replaces the files asked for. Throws FormatError if one cannot
// be written.
void write_report(const Report& report, const ReportOptions& options);

// 0 within bounds, 1 divergence, 2 where only a part could be compared, or judged (behind a flip of
// experts), and that is within bounds, where nothing could be judged, or where something was not
// seen that the user requires: 0 is a promise.
[[nodiscard]] int exit_code(const Report& report);

}  // namespace ttrace::cli
