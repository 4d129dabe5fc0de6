#include "analysis/findings/wording.h"
#include "analysis/reports/finding_text.h"
#include "analysis/reports/report_writers.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <utility>

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
  out << name << side.directory << " (" << manifest.pass << " pass, "
      << counted(manifest.world_size, "rank", "ranks") << ", " << layout_text(manifest.layout)
      << ", " << manifest.precision << ")\n";
}

void write_verdict_line(std::ostream& out, const Report& report, bool color) {
  std::string word = report.diverged() ? "DIVERGED"
                     : report.undecided()
                         ? "UNDECIDED: what differs comes after tokens that go to other experts"
                         : "WITHIN BOUND";
  if (report.partial()) {
    word = "PARTIAL: " + std::string(report.diverged() ? "DIVERGED" : "within bound so far") +
           "; the verdict covers only what was written before the interruption";
  }
  if (color) {
    const char* yellow = "\033[1;33m";
    out << (report.diverged()                        ? "\033[1;31m"
            : report.partial() || report.undecided() ? yellow
                                                     : "\033[1;32m")
        << word << "\033[0m\n";
  } else {
    out << word << '\n';
  }
}

void write_way_out(std::ostream& out) {
  out << "  what to do: let the reference go on with the candidate's choices: `ttrace check` with "
         "a "
         "command for the reference does, and with a stored one if it gets --rerun COMMAND\n";
}

// Other bugs, or the same one elsewhere.
void write_further_roots(std::ostream& out, const Report& report) {
  if (report.further_roots.empty()) {
    return;
  }
  out << "also wrong by their own operators, whatever came before:\n";
  for (const Root& root : report.further_roots) {
    const TensorVerdict& tensor = report.tensors[root.tensor];
    out << "  " << to_string(tensor.id) << ": " << tensor.cause() << '\n';
    write_diagnosis(out, "    ", root.diagnosis);
  }
  if (report.roots_left_out > 0) {
    out << "  ... and " << report.roots_left_out << " more\n";
  }
}

void write_first_divergence(std::ostream& out, const Report& report) {
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  out << "first divergence: " << to_string(tensor.id) << '\n';
  write_finding(out, tensor, report.diagnosis);
  out << "  where to look: " << report.where_to_look << '\n';
}

using Row = std::array<std::string, 5>;

Row row_of(const TensorVerdict& tensor) {
  const FindingNumbers numbers = numbers_of(tensor);
  return {to_string(tensor.id), numbers.error, numbers.bound, numbers.ratio, short_cause(tensor)};
}

// What the user permits to differ; what is permitted to be missing has no numbers to list.
bool is_allowed_difference(const TensorVerdict& tensor) {
  return tensor.allowed() && tensor.status() == Status::kDiverged;
}

// The tensors that are findings, or those that would be were they not allowed; nothing for none.
void write_table(std::ostream& out, const Report& report, bool allowed, std::size_t max_rows) {
  std::vector<Row> rows{{"id", "error", "bound", "error/bound", "cause"}};
  std::size_t left_out = 0;
  for (const TensorVerdict& tensor : report.tensors) {
    if (allowed ? !is_allowed_difference(tensor) : !tensor.is_finding()) {
      continue;
    }
    if (rows.size() <= max_rows) {
      rows.push_back(row_of(tensor));
    } else {
      ++left_out;
    }
  }
  if (rows.size() == 1) {
    return;
  }
  std::array<std::size_t, 4> widths{};
  for (const Row& row : rows) {
    for (std::size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  out << (allowed ? "\nallowed, decides nothing:\n"
                  : "\nwhat differs, in the order in which the reference ran:\n");
  for (const Row& row : rows) {
    out << "  ";
    for (std::size_t column = 0; column < widths.size(); ++column) {
      out << row[column] << std::string(widths[column] - row[column].size() + 2, ' ');
    }
    out << row.back() << '\n';
  }
  if (left_out > 0) {
    out << "  ... and " << left_out << " more (--format json lists all)\n";
  }
}

void write_closest(std::ostream& out, const Report& report) {
  const TensorVerdict* closest = nullptr;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == Status::kWithin && !tensor.has(Excuse::kHarmlessScale) &&
        tensor.comparison && tensor.bound() > 0.0 &&
        (closest == nullptr || tensor.ratio() > closest->ratio())) {
      closest = &tensor;
    }
  }
  if (closest != nullptr) {
    out << "closest to its bound: " << to_string(closest->id) << ", error "
        << short_number(closest->comparison->error) << ", bound " << short_number(closest->bound())
        << " (" << short_number(closest->ratio()) << " of it)\n";
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
    lines.push_back(
        std::string(name_of(name.side)) + ": " + to_string(name) +
        (nearest.empty()
             ? ""
             : "; nearest in the " + std::string(name_of(other(name.side))) + ": " + nearest));
  }
  write_list(
      out, "names without a counterpart (--rename says which are the same)", lines, max_rows);
}

void write_routing(std::ostream& out, const Report& report) {
  const auto flips = report.flips();
  if (!flips) {
    return;
  }
  out << "\nrouting: " << flips->flips << " of " << counted(flips->tokens, "token", "tokens")
      << (flips->flips == 1 ? " goes" : " go") << " to other experts than in the reference";
  if (flips->flips > 0) {
    out << ", " << flips->illegal
        << " of them beyond round-off (nearest to its bound: scores moved by "
        << short_number(flips->largest_move) << ", bound " << short_number(flips->bound) << ")";
  }
  if (report.follows_candidate()) {
    out << "; the reference went on with the candidate's choices";
  }
  out << '\n';
  if (const std::size_t behind = report.counts().behind_flip; behind > 0) {
    out << "  " << counted(static_cast<std::int64_t>(behind), "tensor", "tensors")
        << " after such a token differ and are not sharply judged, because this reference went on "
           "with its own choices"
        << (flips->illegal > 0 && report.undecided()
                ? " (choices beyond round-off among them, which may follow from earlier ones)"
                : "")
        << '\n';
  }
}

// What most reports have none of.
void write_count(std::ostream& out, std::size_t count, const char* what) {
  if (count > 0) {
    out << ", " << count << ' ' << what;
  }
}

void write_limits(std::ostream& out, const Report& report) {
  if (!report.calibration) {
    out << "limits are shipped defaults, not calibrated for this program";
    return;
  }
  const CalibrationUse& use = *report.calibration;
  out << "limits calibrated over ";
  if (use.vouched) {
    out << counted(static_cast<std::int64_t>(use.runs), "run", "runs")
        << " that the user vouched for, of which " << use.alarms_shipped
        << " raise an alarm under the shipped limits and " << use.alarms << " under these";
  } else {
    out << counted(static_cast<std::int64_t>(use.runs), "clean run", "clean runs");
  }
  out << ": run-level false alarms below " << short_number(100.0 * use.rate_bound) << " % (95 %)";
  const char* separator = "; shipped limits where those runs said nothing: ";
  for (const std::string& limit : use.shipped) {
    out << std::exchange(separator, ", ") << limit;
  }
}

void write_counts(std::ostream& out, const Report& report) {
  const Counts counts = report.counts();
  out << '\n';
  if (counts.bounds_from_noise + counts.bounds_class_default > 0) {
    write_limits(out, report);
    if (counts.bounds_class_default > 0) {
      out << "; class defaults are weak, noise passes of the reference give better bounds";
    }
    out << '\n';
  }
  out << counted(static_cast<std::int64_t>(counts.tensors), "tensor", "tensors") << ": "
      << counts.within_bound << " within bound, " << counts.out_of_bound << " out of bound, "
      << counts.missing_in_candidate << " missing in the candidate, " << counts.missing_in_reference
      << " missing in the reference";
  write_count(out, counts.allowed_failed, "allowed out of bound");
  write_count(out, counts.allowed_missing, "allowed missing");
  write_count(out, counts.incomplete, "incomplete");
  write_count(out, counts.behind_flip, "behind a flip of experts");
  write_count(out, report.left_out, "left out by selection");
  if (report.has_residuals) {
    out << "; operators: " << counts.operators << " checked on their own, "
        << counts.operators_wrong << " wrong, " << counts.inherited << " inherited";
  }
  if (report.is_dyadic) {
    out << "; dyadic inputs: " << counts.must_be_equal << " must be equal, " << counts.not_judged
        << " are not judged, because the reference itself rounds there";
  }
  if (report.has_golden) {
    out << "; golden: " << counts.golden << " held against FP64, " << counts.too_accurate
        << " too accurate, " << counts.too_coarse << " too coarse";
  }
  if (report.edges.edges > 0) {
    out << "; edges: " << report.edges.checked << " of " << report.edges.edges
        << " inputs are what the module before returned";
  }
  out << "; bounds: " << counts.bounds_from_noise << " from "
      << counted(report.noise_passes, "noise pass", "noise passes") << ", " << counts.bounds_exact
      << " exact, " << counts.bounds_class_default << " class defaults";
  write_count(out, counts.bounds_asked, "asked for");
  out << '\n';
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
    write_first_divergence(out, report);
    write_further_roots(out, report);
    write_table(out, report, false, options.max_rows);
  } else {
    if (report.undecided()) {
      write_way_out(out);
    }
    write_closest(out, report);
  }
  write_table(out, report, true, options.max_rows);
  write_unmatched(out, report, options.max_rows);
  write_routing(out, report);
  write_list(out, "lacking", report.lacking, options.max_rows);
  write_list(out, "notes", report.notes, options.max_rows);
  write_counts(out, report);
}

}  // namespace ttrace
