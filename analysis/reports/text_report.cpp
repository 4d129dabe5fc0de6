#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "analysis/reports/counts_text.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"
#include "analysis/reports/zoom_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

std::string layout_text(const Section& layout) {
  std::string text;
  for (const auto& [axis, size] : layout) {
    if (size == "1") {
      continue;
    }
    text.append(text.empty() ? "" : ", ").append(axis).append(" ").append(size);
  }
  return text.empty() ? "one device" : text;
}

void write_side(std::ostream& out, const char* name, const Side& side) {
  const Manifest& manifest = side.manifest;
  out << fmt::format("{}{} ({}, {}, {}, {})\n",
                     name,
                     side.directory,
                     manifest.imported_from.empty() ? manifest.pass + " pass"
                                                    : "imported from " + manifest.imported_from,
                     counted(manifest.world_size, "rank"),
                     layout_text(manifest.layout),
                     precision_text(side));
}

constexpr std::string_view kPlain = "\033[0m";
constexpr std::string_view kBold = "\033[1m";
constexpr std::string_view kBoldRed = "\033[1;31m";
constexpr std::string_view kBoldGreen = "\033[1;32m";
constexpr std::string_view kBoldYellow = "\033[1;33m";

// Ids are what a reader looks for, and copies.
std::string id_text(const TensorVerdict& tensor, bool color) {
  const std::string id = to_string(tensor.id);
  return color ? fmt::format("{}{}{}", kBold, id, kPlain) : id;
}

void write_verdict_line(std::ostream& out, const Report& report, bool color) {
  std::string word = headline(report);
  if (color) {
    const std::string_view ink = report.diverged()             ? kBoldRed
                                 : reservation(report).empty() ? kBoldGreen
                                                               : kBoldYellow;
    word = fmt::format("{}{}{}", ink, word, kPlain);
  }
  out << word << '\n';
}

void write_way_out(std::ostream& out) {
  out << "  what to do: let the reference use the candidate's choices of experts; `ttrace check` "
         "does so with a command for the reference, or with a stored one and --rerun COMMAND\n";
}

// These are other bugs, or the same one elsewhere.
void write_further_roots(std::ostream& out, const Report& report, bool color) {
  if (report.further_roots.empty()) {
    return;
  }
  out << "also wrong on their own, not because of an earlier error:\n";
  for (const Root& root : report.further_roots) {
    const TensorVerdict& tensor = report.tensors[root.tensor];
    write_causes(out, "  " + id_text(tensor, color) + ": ", "    ", tensor);
    write_diagnosis(out, "    ", root.diagnosis);
  }
  if (report.roots_left_out > 0) {
    out << "  ... and " << report.roots_left_out << " more\n";
  }
}

// Those of largest error, where the tensor's features are heads.
void write_heads(std::ostream& out, const Report& report) {
  constexpr std::size_t kMostHeads = 4;
  std::vector<std::string> heads;
  for (const PartError& part :
       report.close_look ? report.close_look->parts : std::vector<PartError>()) {
    if (part.is_head && heads.size() < kMostHeads) {
      heads.push_back(fmt::format("{} ({})", part.where, short_number(part.error)));
    }
  }
  if (!heads.empty()) {
    out << fmt::format("  heads: those of largest error are {}\n", fmt::join(heads, ", "));
  }
}

void write_first_divergence(std::ostream& out, const Report& report, bool color) {
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  out << "first divergence: " << id_text(tensor, color) << '\n';
  write_finding(out, tensor, report.diagnosis);
  write_heads(out, report);
  out << "  where to look: " << report.where_to_look << '\n';
  if (!report.source.sentence.empty()) {
    out << "  source: " << report.source.sentence << '\n';
  }
}

std::vector<std::string> row_of(const TensorVerdict& tensor) {
  const FindingNumbers numbers = numbers_of(tensor);
  return {to_string(tensor.id), numbers.error, numbers.bound, numbers.ratio, short_cause(tensor)};
}

// A tensor that the user allows to differ. One that is allowed to be missing has no numbers to
// list.
bool is_allowed_difference(const TensorVerdict& tensor) {
  return tensor.allowed() && tensor.status() == Status::kDiverged;
}

// Lists the findings or, if `allowed`, the tensors that would be findings if they were not allowed.
// Writes nothing if there are none.
void write_table(std::ostream& out,
                 const Report& report,
                 bool allowed,
                 const TextOptions& options) {
  std::vector<std::vector<std::string>> rows{{"id", "error", "bound", "error/bound", "cause"}};
  std::size_t left_out = 0;
  for (const TensorVerdict& tensor : report.tensors) {
    if (allowed ? !is_allowed_difference(tensor) : !tensor.is_finding()) {
      continue;
    }
    if (rows.size() <= options.max_rows) {
      rows.push_back(row_of(tensor));
    } else {
      ++left_out;
    }
  }
  if (rows.size() == 1) {
    return;
  }
  out << (allowed ? "\nallowed to differ, so the verdict ignores them:\n"
                  : "\ndiverged tensors, in the order in which the reference ran:\n");
  write_columns(out, rows, options.color ? TableStyle{kBold, kPlain} : TableStyle{});
  if (left_out > 0) {
    out << "  ... and " << left_out << " more (--format json lists all)\n";
  }
}

void write_closest(std::ostream& out, const Report& report, bool color) {
  const TensorVerdict* closest = nullptr;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == Status::kWithin && !tensor.has(Excuse::kHarmlessScale) &&
        tensor.comparison && tensor.bound() > 0.0 &&
        (closest == nullptr || tensor.ratio() > closest->ratio())) {
      closest = &tensor;
    }
  }
  if (closest != nullptr) {
    out << fmt::format("closest to its bound: {}, error {}, bound {} ({} of it)\n",
                       id_text(*closest, color),
                       short_number(closest->comparison->error),
                       short_number(closest->bound()),
                       short_number(closest->ratio()));
  }
}

void write_list(std::ostream& out,
                const char* name,
                const std::vector<std::string>& notes,
                std::size_t max_rows) {
  if (notes.empty()) {
    return;
  }
  out << '\n' << name << ":\n";
  for (std::size_t i = 0; i < std::min(notes.size(), max_rows); ++i) {
    out << "  " << notes[i] << '\n';
  }
  if (notes.size() > max_rows) {
    out << "  ... and " << notes.size() - max_rows << " more (--format json lists all)\n";
  }
}

void write_unmatched(std::ostream& out, const Report& report, std::size_t max_rows) {
  std::vector<std::string> lines;
  for (const UnmatchedName& name : report.unmatched) {
    const std::string nearest = nearest_text(name);
    lines.push_back(fmt::format("{}: {}", name_of(name.side), to_string(name)));
    if (!nearest.empty()) {
      lines.back() += fmt::format("; nearest in the {}: {}", name_of(other(name.side)), nearest);
    }
  }
  write_list(out, "names that only one program has (--rename can pair them)", lines, max_rows);
}

void write_routing(std::ostream& out, const Report& report) {
  const auto flips = report.flips();
  if (!flips) {
    return;
  }
  out << fmt::format("\nrouting: {} of {} {} to other experts than in the reference",
                     flips->flips,
                     counted(flips->tokens, "token"),
                     flips->flips == 1 ? "goes" : "go");
  if (flips->flips > 0) {
    out << fmt::format(
        "; round-off cannot explain {} of them (the scores nearest to their bound moved by {}, "
        "bound {})",
        flips->illegal,
        short_number(flips->largest_move),
        short_number(flips->bound));
  }
  out << (report.follows_candidate() ? "; the reference used the candidate's choices\n" : "\n");
  if (const std::size_t behind = report.counts().behind_flip; behind > 0) {
    out << fmt::format(
        "  {} that depend on such tokens differ and are not judged sharply, because this reference "
        "used its own choices{}\n",
        counted(behind, "tensor"),
        flips->illegal > 0 && report.undecided()
            ? "; this includes choices beyond round-off, which may follow from earlier ones"
            : "");
  }
}

}  // namespace

void write_text(std::ostream& out, const Report& report, const TextOptions& options) {
  write_side(out, "reference: ", report.reference);
  write_side(out, "candidate: ", report.candidate);
  for (const std::string& remark : report.remarks) {
    out << "remark: " << remark << '\n';
  }
  out << '\n';
  write_verdict_line(out, report, options.color);
  if (report.diverged()) {
    write_first_divergence(out, report, options.color);
    write_further_roots(out, report, options.color);
    write_table(out, report, false, options);
  } else {
    if (report.undecided()) {
      write_way_out(out);
    }
    write_closest(out, report, options.color);
  }
  write_table(out, report, true, options);
  write_unmatched(out, report, options.max_rows);
  write_routing(out, report);
  write_list(out, "incomplete, because a step was interrupted", report.lacking, options.max_rows);
  write_list(out, "placements inferred from values", report.inferred, options.max_rows);
  write_list(out, "required, but not seen", report.unmet, options.max_rows);
  write_list(out, "not seen", lines_of(report.not_seen), options.max_rows);
  write_list(out, "notes", report.notes, options.max_rows);
  out << '\n';
  write_counts(out, report);
  if (report.zoom) {
    write_zoom(out, *report.zoom);
  }
}

}  // namespace ttrace
