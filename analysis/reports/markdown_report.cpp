#include "analysis/findings/wording.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/markdown_text.h"
#include "analysis/reports/report_writers.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {
namespace {

// The id of a tensor has no character that would end this.
std::string code(const TensorId& id) {
  return fmt::format("`{}`", to_string(id));
}

void write_item(std::ostream& out, std::string_view name, std::string_view text) {
  if (!text.empty()) {
    out << fmt::format("- **{}:** {}\n", name, markdown_text(text));
  }
}

void write_facts(std::ostream& out, const std::vector<Fact>& facts, Depth deepest) {
  for (const Fact& fact : facts) {
    if (fact.depth <= deepest) {
      write_item(out, fact.label, fact.text);
    }
  }
}

void write_first(std::ostream& out, const Report& report) {
  const TensorId& id = report.tensors[*report.first_divergence].id;
  out << fmt::format("**First divergence:** {}\n\n", code(id));
  write_facts(out, facts_of_finding(report, *report.first_divergence), Depth::kEvidence);
  out << '\n';
}

void write_further(std::ostream& out, const Report& report) {
  if (report.further_roots.empty()) {
    return;
  }
  out << "**Also wrong on their own**, not because of an earlier error:\n\n";
  for (const Root& root : report.further_roots) {
    out << fmt::format("- {}: {}\n",
                       code(report.tensors[root.tensor].id),
                       markdown_text(finding_line(report, root.tensor)));
  }
  if (report.roots_left_out > 0) {
    out << fmt::format("- ... and {} more\n", report.roots_left_out);
  }
  out << '\n';
}

void write_findings(std::ostream& out, const Report& report, std::size_t max_rows) {
  const FindingTable table = findings_of(report, false, max_rows);
  if (table.rows.empty()) {
    return;
  }
  out << "| Tensor | Error | Bound | Error / bound | Cause |\n|---|---:|---:|---:|---|\n";
  for (const std::vector<std::string>& row : table.rows) {
    out << fmt::format(
        "| `{}` | {} | {} | {} | {} |\n", row[0], row[1], row[2], row[3], markdown_text(row[4]));
  }
  if (table.left_out > 0) {
    out << fmt::format("\n... and {} more\n", table.left_out);
  }
  out << '\n';
}

void write_not_seen(std::ostream& out, const Report& report, std::size_t max_rows) {
  for (const std::string& sentence : report.unmet) {
    write_item(out, "Required", sentence);
  }
  const std::vector<std::string> lines = lines_of(report.not_seen);
  for (std::size_t i = 0; i < std::min(lines.size(), max_rows); ++i) {
    write_item(out, "Not seen", lines[i]);
  }
  if (lines.size() > max_rows) {
    out << fmt::format("- ... and {} more\n", lines.size() - max_rows);
  }
  out << (lines.empty() && report.unmet.empty() ? "" : "\n");
}

void write_details(std::ostream& out, const Report& report) {
  out << "<details><summary>Runs and counts</summary>\n\n";
  write_facts(out, facts_of_run(report), Depth::kDetail);
  for (const std::string& line : report.lacking) {
    write_item(out, "incomplete", line);
  }
  out << "\n</details>\n";
}

}  // namespace

void write_markdown(std::ostream& out, const Report& report, std::size_t max_rows) {
  out << "## TTrace: " << markdown_text(headline(report)) << "\n\n";
  if (report.diverged()) {
    write_first(out, report);
    write_further(out, report);
    write_findings(out, report, max_rows);
  }
  write_not_seen(out, report, max_rows);
  write_details(out, report);
}

}  // namespace ttrace
