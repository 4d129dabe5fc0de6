#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/facts.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"
#include "analysis/reports/wrapped_text.h"
#include "analysis/reports/zoom_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

constexpr std::string_view kPlain = "\033[0m";
constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kCyan = "\033[36m";
constexpr std::string_view kBoldRed = "\033[1;31m";
constexpr std::string_view kBoldGreen = "\033[1;32m";
constexpr std::string_view kBoldYellow = "\033[1;33m";

constexpr std::size_t kLabel = 11;     // columns of a label, with the space behind it
constexpr std::size_t kShortList = 3;  // lines of a list that --details prints whole

std::string inked(std::string_view ink, std::string text, const TextOptions& options) {
  return options.color && !ink.empty() ? fmt::format("{}{}{}", ink, text, kPlain) : text;
}

std::string_view ink_of(const Fact& fact) {
  return fact.key == "cause"            ? kBold
         : fact.key == "code"           ? kCyan
         : fact.depth != Depth::kAnswer ? kDim
                                        : std::string_view();
}

void write_fact(std::ostream& out, const Fact& fact, const TextOptions& options) {
  const std::string text = wrapped(fact.text, options.width, 2 + kLabel);
  out << fmt::format("  {:<{}}{}\n", fact.label, kLabel, inked(ink_of(fact), text, options));
}

void write_facts(std::ostream& out,
                 const std::vector<Fact>& facts,
                 Depth depth,
                 const TextOptions& options) {
  for (const Fact& fact : facts) {
    if (fact.depth == depth && fact.key != "where") {
      write_fact(out, fact, options);
    }
  }
}

// "DIVERGED  layers.0.wo: output, step 0, micro-batch 0"
void write_title(std::ostream& out, const Report& report, const TextOptions& options) {
  const std::string_view ink = report.diverged()             ? kBoldRed
                               : reservation(report).empty() ? kBoldGreen
                                                             : kBoldYellow;
  out << inked(ink, headline(report), options);
  if (report.diverged()) {
    out << "  " << place_text(report.tensors[*report.first_divergence].id);
  }
  out << '\n';
}

void write_first_divergence(std::ostream& out, const Report& report, const TextOptions& options) {
  const std::vector<Fact> facts = facts_of_finding(report, *report.first_divergence);
  write_facts(out, facts, Depth::kAnswer, options);
  out << '\n';
  write_facts(out, facts, Depth::kEvidence, options);
  if (options.details) {
    write_facts(out, facts, Depth::kDetail, options);
  }
}

// A heading and a line for each; the first ones alone unless details were asked for.
void write_list(std::ostream& out,
                std::string_view label,
                const std::vector<std::string>& lines,
                const TextOptions& options) {
  const std::size_t most = options.details ? options.max_rows : kShortList;
  for (std::size_t i = 0; i < std::min(lines.size(), most); ++i) {
    write_fact(
        out,
        {.key = "", .label = i == 0 ? label : "", .text = lines[i], .depth = Depth::kEvidence},
        options);
  }
  if (lines.size() > most) {
    write_fact(
        out,
        {.key = "",
         .label = "",
         .text = fmt::format("... and {} more{}",
                             lines.size() - most,
                             options.details ? " (--format json lists all)" : " (--details)"),
         .depth = Depth::kEvidence},
        options);
  }
}

// These are other bugs, or the same one elsewhere.
void write_further_roots(std::ostream& out, const Report& report, const TextOptions& options) {
  std::vector<std::string> lines;
  for (const Root& root : report.further_roots) {
    const std::vector<Fact> facts = facts_of_finding(report, root.tensor);
    const auto why = std::ranges::find(facts, "why", &Fact::label);
    lines.push_back(facts.front().text + (why == facts.end() ? "" : ": " + why->text));
  }
  if (report.roots_left_out > 0) {
    lines.push_back(fmt::format("... and {} more", report.roots_left_out));
  }
  write_list(out, "also made", lines, options);
}

// Writes nothing if there are none.
void write_table(std::ostream& out,
                 const Report& report,
                 bool allowed,
                 const TextOptions& options) {
  FindingTable table = findings_of(report, allowed, options.max_rows);
  if (table.rows.empty()) {
    return;
  }
  table.rows.insert(table.rows.begin(), {"id", "error", "bound", "error/bound", "cause"});
  out << (allowed ? "\nallowed to differ, so the verdict ignores them:\n"
                  : "\ndiverged tensors, in the order in which the reference ran:\n");
  write_columns(out, table.rows, options.color ? TableStyle{kBold, kPlain} : TableStyle{});
  if (table.left_out > 0) {
    out << "  ... and " << table.left_out << " more (--format json lists all)\n";
  }
}

std::vector<std::string> unmatched_lines(const Report& report) {
  std::vector<std::string> lines;
  for (const UnmatchedName& name : report.unmatched) {
    const std::string nearest = nearest_text(name);
    lines.push_back(fmt::format("{}: {}", name_of(name.side), to_string(name)));
    if (!nearest.empty()) {
      lines.back() += fmt::format("; nearest in the {}: {}", name_of(other(name.side)), nearest);
    }
  }
  if (!lines.empty()) {
    lines.front() = "only one program has them (--rename can pair them): " + lines.front();
  }
  return lines;
}

std::vector<std::string> routing_lines(const Report& report) {
  const auto flips = report.flips();
  if (!flips) {
    return {};
  }
  std::string text = fmt::format("{} of {} {} to other experts than in the reference",
                                 flips->flips,
                                 counted(flips->tokens, "token"),
                                 flips->flips == 1 ? "goes" : "go");
  if (flips->flips > 0) {
    text += fmt::format(
        "; round-off cannot explain {} of them (the scores nearest to their bound moved by {}, "
        "bound {})",
        flips->illegal,
        short_number(flips->largest_move),
        short_number(flips->bound));
  }
  std::vector<std::string> lines{
      text + (report.follows_candidate() ? "; the reference used the candidate's choices" : "")};
  if (const std::size_t behind = report.counts().behind_flip; behind > 0) {
    lines.push_back(fmt::format(
        "{} that depend on such tokens differ and are not judged sharply, because this reference "
        "used its own choices{}",
        counted(behind, "tensor"),
        flips->illegal > 0 && report.undecided()
            ? "; this includes choices beyond round-off, which may follow from earlier ones"
            : ""));
  }
  return lines;
}

void write_run(std::ostream& out, const Report& report, const TextOptions& options) {
  const std::vector<Fact> facts = facts_of_run(report);
  write_facts(out, facts, Depth::kEvidence, options);
  write_list(out, "experts", routing_lines(report), options);
  write_list(out, "names", unmatched_lines(report), options);
  write_list(out, "incomplete", report.lacking, options);
  write_list(out, "inferred", report.inferred, options);
  write_list(out, "required", report.unmet, options);
  write_list(out, "not seen", lines_of(report.not_seen), options);
  write_list(out, "notes", report.notes, options);
  if (options.details) {
    write_facts(out, facts, Depth::kDetail, options);
  }
}

void write_next(std::ostream& out, const Report& report, const TextOptions& options) {
  if (options.run.empty()) {
    return;
  }
  const auto write = [&](std::string_view label, std::string_view command, std::string_view what) {
    out << fmt::format(
        "  {:<{}}{}  # {}\n", label, kLabel, fmt::format(fmt::runtime(command), options.run), what);
  };
  if (report.diverged()) {
    write("next", "ttrace explain {}", "the arithmetic of this verdict");
    write("", "ttrace zoom {}", "the operator and its line");
    write("", "ttrace diff {} --details", "all that is wrong");
  } else {
    write("next", "ttrace diff {} --details", "every number");
  }
}

}  // namespace

void write_text(std::ostream& out, const Report& report, const TextOptions& options) {
  write_title(out, report, options);
  if (report.diverged()) {
    write_first_divergence(out, report, options);
    write_further_roots(out, report, options);
  } else if (report.undecided()) {
    write_fact(out,
               {.key = "to_do",
                .label = "to do",
                .text = "let the reference use the candidate's choices of experts; `ttrace check` "
                        "does so with a command for the reference, or with a stored one and "
                        "--rerun COMMAND"},
               options);
  }
  write_run(out, report, options);
  write_next(out, report, options);
  if (options.details) {
    write_table(out, report, false, options);
    write_table(out, report, true, options);
  }
  if (report.zoom) {
    write_zoom(out, *report.zoom);
  }
}

}  // namespace ttrace
