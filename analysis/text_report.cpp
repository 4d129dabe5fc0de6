#include "analysis/report.h"
#include "analysis/wording.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
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

void write_numbers(std::ostream& out, const TensorVerdict& tensor) {
  const Comparison& comparison = *tensor.comparison;
  out << "  error: " << short_number(comparison.error) << ", "
      << short_number(comparison.relative_error)
      << (tensor.symptom == Symptom::kRecompute ? " of the first forward's norm "
                                                : " of the reference's norm ")
      << short_number(comparison.reference_norm) << '\n';
  if (comparison.asked) {
    out << "  bound: |c - r| <= " << short_number(comparison.asked->tolerance.atol) << " + "
        << short_number(comparison.asked->tolerance.rtol) << " |r| at every element, from "
        << tensor.bound_source << "; " << comparison.asked->beyond << " of " << comparison.elements
        << " elements beyond";
  } else {
    out << "  bound: " << short_number(comparison.bound)
        << (tensor.bound_source.starts_with("exact") ? ", " : " from ") << tensor.bound_source;
  }
  if (comparison.bound > 0.0 && !comparison.asked) {
    out << "; relative errors below " << short_number(comparison.detectable) << " go unseen";
  }
  out << '\n';
  if (tensor.symptom == Symptom::kSlice) {
    out << "  slice: " << comparison.slice->where << ": error "
        << short_number(comparison.slice->error) << ", bound "
        << short_number(comparison.slice->bound) << '\n';
  }
  if (comparison.different > 0) {
    out << "  elements: largest difference " << short_number(comparison.max_difference);
    if (!comparison.max_index.empty()) {
      out << " at " << index_text(comparison.max_index);
    }
    out << ", " << comparison.different << " of " << comparison.elements << " differ\n";
  }
}

// What its own operators did, whatever came before.
void write_residual(std::ostream& out, const OperatorResidual& residual) {
  out << "  operators: from the candidate's own inputs they make something "
      << short_number(residual.error) << " away from it; round-off leaves "
      << short_number(residual.scale()) << ", so R " << short_number(residual.residual())
      << " (limit " << short_number(residual.limit) << "), factor " << factor_text(residual.factor)
      << "; " << short_number(std::floor(1000.0 * residual.bit_equal) / 10.0)
      << " % of the elements are bit for bit what the reference makes of them\n";
}

void write_golden(std::ostream& out, const GoldenComparison& golden) {
  out << "  golden: the candidate is " << short_number(golden.candidate_error)
      << " away from FP64, the reference " << short_number(golden.reference_error) << ", so rho "
      << short_number(golden.rho()) << '\n';
}

void write_diagnosis(std::ostream& out,
                     const char* indent,
                     const std::optional<Diagnosis>& diagnosis) {
  if (diagnosis) {
    std::string name(name_of(diagnosis->signature));
    std::replace(name.begin(), name.end(), '_', ' ');
    out << indent << "probable cause: " << name << ": " << diagnosis->sentence << '\n';
  }
}

// Other bugs, or the same one elsewhere.
void write_further_roots(std::ostream& out, const Report& report) {
  if (report.further_roots.empty()) {
    return;
  }
  out << "also wrong by their own operators, whatever came before:\n";
  for (const Root& root : report.further_roots) {
    const TensorVerdict& tensor = report.tensors[root.tensor];
    out << "  " << to_string(tensor.id) << ": " << tensor.cause << '\n';
    write_diagnosis(out, "    ", root.diagnosis);
  }
  if (report.roots_left_out > 0) {
    out << "  ... and " << report.roots_left_out << " more\n";
  }
}

void write_first_divergence(std::ostream& out, const Report& report) {
  const TensorVerdict& tensor = report.tensors[*report.first_divergence];
  out << "first divergence: " << to_string(tensor.id) << '\n';
  out << "  what: " << tensor.cause << '\n';
  write_diagnosis(out, "  ", report.diagnosis);
  if (tensor.residual) {
    write_residual(out, *tensor.residual);
  }
  if (tensor.golden && !tensor.golden->is_within()) {
    write_golden(out, *tensor.golden);
  }
  if (tensor.comparison) {
    write_numbers(out, tensor);
  }
  if (!tensor.ranks.empty()) {
    out << "  concerns: " << ranks_text(tensor.ranks) << '\n';
  }
  out << "  where to look: " << report.where_to_look << '\n';
}

std::string short_cause(const TensorVerdict& tensor) {
  switch (tensor.status) {
    case Status::kMissingInCandidate:
      return "missing in the candidate";
    case Status::kMissingInReference:
      return "missing in the reference";
    default:
      break;
  }
  if (tensor.symptom == Symptom::kSlice) {
    return tensor.comparison->slice->where;
  }
  if (tensor.symptom == Symptom::kFactor) {
    return "factor " + factor_text(tensor.comparison->factor);
  }
  std::string text(name_of(tensor.symptom));
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

using Row = std::array<std::string, 5>;

Row row_of(const TensorVerdict& tensor) {
  Row row{to_string(tensor.id), "-", "-", "-", short_cause(tensor)};
  if (tensor.symptom == Symptom::kSlice) {
    const SliceComparison& slice = *tensor.comparison->slice;
    row[1] = short_number(slice.error);
    row[2] = short_number(slice.bound);
    row[3] = short_number(slice.error / slice.bound);
  } else if (tensor.tier == Tier::kGolden) {
    const GoldenComparison& golden = *tensor.golden;
    const double bound = golden.is_too_coarse() ? golden.limit * golden.scale
                                                : golden.least * golden.reference_error;
    row[1] = short_number(golden.candidate_error);
    row[2] = short_number(bound);
    row[3] = short_number(golden.candidate_error / bound);
  } else if (tensor.comparison) {
    row[1] = short_number(tensor.comparison->error);
    row[2] = short_number(tensor.comparison->bound);
    row[3] = short_number(tensor.comparison->ratio());
  }
  return row;
}

// What the user permits to differ; what is permitted to be missing has no numbers to list.
bool is_allowed_difference(const TensorVerdict& tensor) {
  return tensor.allowed && tensor.status == Status::kDiverged;
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
    if (tensor.status == Status::kWithin && !tensor.is_harmless_scale() && tensor.comparison &&
        tensor.comparison->bound > 0.0 &&
        (closest == nullptr || tensor.comparison->ratio() > closest->comparison->ratio())) {
      closest = &tensor;
    }
  }
  if (closest != nullptr) {
    out << "closest to its bound: " << to_string(closest->id) << ", error "
        << short_number(closest->comparison->error) << ", bound "
        << short_number(closest->comparison->bound) << " ("
        << short_number(closest->comparison->ratio()) << " of it)\n";
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
  out << "limits calibrated over "
      << counted(static_cast<std::int64_t>(use.runs), "clean run", "clean runs")
      << ": run-level false alarms below " << short_number(100.0 * use.rate_bound) << " % (95 %)";
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
