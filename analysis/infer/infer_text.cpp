#include "analysis/findings/wording.h"
#include "analysis/infer/infer_report.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

std::string tensors_text(std::size_t count) {
  return counted(static_cast<std::int64_t>(count), "tensor", "tensors");
}

// "inputs 1"; "value" for slot 0.
std::string field_text(const PlacementClass& tensors) {
  return tensors.field + (tensors.slot == 0 ? "" : " " + std::to_string(tensors.slot));
}

void write_numbers(std::ostream& out, const Inference& inference) {
  out << tensors_text(inference.tensors.size()) << ": " << inference.count(Source::kBytes)
      << " placed by their bytes, " << inference.count(Source::kSizes) << " by their sizes, "
      << inference.count(Source::kVote) << " by the vote of their class, "
      << inference.count(Source::kSimplest) << " ambiguous, " << inference.count(Source::kNone)
      << " not explained\n";
  if (inference.by_rows > 0) {
    out << tensors_text(inference.by_rows)
        << " more with rows that a router sent are left to the program\n";
  }
  if (inference.one_sided > 0) {
    out << tensors_text(inference.one_sided) << " more in one trace only\n";
  }
}

void write_line(std::ostream& out,
                const std::vector<std::string>& cells,
                const std::vector<std::size_t>& widths) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    line += cells[i] + std::string(i + 1 < cells.size() ? widths[i] - cells[i].size() + 2 : 0, ' ');
  }
  out << line << '\n';
}

std::string votes_text(const Election& election) {
  std::string text = std::to_string(election.votes) + " of " + std::to_string(election.members);
  if (election.tied > 1) {
    text += ", " + std::to_string(election.tied - 1) + " more agree as well";
  }
  return text;
}

void write_classes(std::ostream& out, const Inference& inference) {
  std::vector<std::vector<std::string>> lines{{"path", "field", "dims", "votes"}};
  for (const InferredClass& found : inference.classes) {
    lines.push_back({found.tensors.pattern,
                     field_text(found.tensors),
                     found.election.dims.empty() ? "scalar" : found.election.dims,
                     votes_text(found.election)});
  }
  std::vector<std::size_t> widths(lines.front().size(), 0);
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      widths[i] = std::max(widths[i], line[i].size());
    }
  }
  out << '\n';
  for (const std::vector<std::string>& line : lines) {
    write_line(out, line, widths);
  }
}

std::string error_text(double error) {
  return std::isinf(error) ? "other sizes than the reference's"
                           : "relative error " + short_number(error);
}

void write_contradiction(std::ostream& out,
                         const Inference& inference,
                         const Contradiction& contradiction) {
  const InferredTensor& first = inference.tensors[contradiction.members.front()];
  const std::size_t more = contradiction.members.size() - 1;
  out << to_string(first.id);
  if (more > 0) {
    out << " and " << more << " more of " << contradiction.tensors.pattern << ", "
        << field_text(contradiction.tensors);
  }
  out << "\n  declared \"" << contradiction.declared << "\": " << error_text(first.declared_error)
      << "\n  the bytes say \"" << contradiction.inferred << "\": " << error_text(first.error)
      << ", on " << ranks_text(first.ranks) << '\n';
}

void write_contradictions(std::ostream& out, const Inference& inference, std::size_t max_rows) {
  const std::size_t count = inference.contradictions.size();
  if (!inference.declares) {
    out << "\nthe candidate declares nothing (placements=\"none\"), so nothing can be wrong\n";
    return;
  }
  if (count == 0) {
    out << "\nno declared placement contradicts the bytes; " << inference.agreeing() << " of "
        << inference.tensors.size() << " are declared as inferred\n";
    return;
  }
  out << "\ndeclared placements that the bytes contradict: "
      << counted(static_cast<std::int64_t>(count), "class of tensors", "classes of tensors")
      << '\n';
  for (std::size_t i = 0; i < std::min(count, max_rows); ++i) {
    write_contradiction(out, inference, inference.contradictions[i]);
  }
  if (count > max_rows) {
    out << "... and " << count - max_rows << " more (--max-report)\n";
  }
}

void write_unexplained(std::ostream& out, const Inference& inference, std::size_t max_rows) {
  const std::size_t count = inference.count(Source::kNone);
  if (count == 0) {
    return;
  }
  out << "\nnot explained:\n";
  std::size_t written = 0;
  for (const InferredTensor& tensor : inference.tensors) {
    if (tensor.source == Source::kNone && written++ < max_rows) {
      out << "  " << to_string(tensor.id) << " on " << ranks_text(tensor.ranks) << ": "
          << tensor.remark << '\n';
    }
  }
  if (count > max_rows) {
    out << "  ... and " << count - max_rows << " more (--max-report)\n";
  }
}

}  // namespace

void write_text(std::ostream& out, const Inference& inference, std::size_t max_rows) {
  write_numbers(out, inference);
  write_classes(out, inference);
  write_unexplained(out, inference, max_rows);
  write_contradictions(out, inference, max_rows);
}

}  // namespace ttrace
