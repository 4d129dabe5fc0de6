#include "analysis/findings/text_columns.h"
#include "analysis/findings/wording.h"
#include "analysis/infer/infer_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// "inputs 1"; "value" for slot 0.
std::string field_text(const PlacementClass& tensors) {
  return tensors.field + (tensors.slot == 0 ? "" : " " + std::to_string(tensors.slot));
}

void write_numbers(std::ostream& out, const Inference& inference) {
  out << fmt::format(
      "{}: {} placed by their bytes, {} by their sizes, {} by the vote of their class, {} "
      "ambiguous, {} not explained\n",
      counted(inference.tensors.size(), "tensor"),
      inference.count(Source::kBytes),
      inference.count(Source::kSizes),
      inference.count(Source::kVote),
      inference.count(Source::kSimplest),
      inference.count(Source::kNone));
  if (inference.by_rows > 0) {
    out << counted(inference.by_rows, "tensor")
        << " not placed, because a router sent their rows and only the program knows where\n";
  }
  if (inference.one_sided > 0) {
    out << counted(inference.one_sided, "tensor")
        << " not placed, because only one trace has them\n";
  }
}

std::string votes_text(const Election& election) {
  return fmt::format(
      "{} of {}{}",
      election.votes,
      election.members,
      election.tied > 1 ? "; equally good: " + counted(election.tied - 1, "other placement") : "");
}

void write_classes(std::ostream& out, const Inference& inference) {
  std::vector<std::vector<std::string>> lines{{"path", "field", "dims", "votes"}};
  for (const InferredClass& found : inference.classes) {
    lines.push_back({found.tensors.pattern,
                     field_text(found.tensors),
                     found.election.dims.empty() ? "scalar" : found.election.dims,
                     votes_text(found.election)});
  }
  out << '\n';
  write_columns(out, lines);
}

std::string error_text(double error) {
  return std::isinf(error) ? "its sizes differ from the reference's"
                           : "relative error " + short_number(error);
}

void write_contradiction(std::ostream& out,
                         const Inference& inference,
                         const Contradiction& contradiction) {
  const InferredTensor& first = inference.tensors[contradiction.members.front()];
  const std::size_t more = contradiction.members.size() - 1;
  out << to_string(first.id);
  if (more > 0) {
    out << fmt::format(" and {} more of {}, {}",
                       more,
                       contradiction.tensors.pattern,
                       field_text(contradiction.tensors));
  }
  out << fmt::format("\n  declared \"{}\": {}\n  the bytes say \"{}\": {}, on {}\n",
                     contradiction.declared,
                     error_text(first.declared_error),
                     contradiction.inferred,
                     error_text(first.error),
                     ranks_text(first.ranks));
}

void write_contradictions(std::ostream& out, const Inference& inference, std::size_t max_rows) {
  const std::size_t count = inference.contradictions.size();
  if (!inference.declares) {
    out << "\nthe candidate declares no placements (placements=\"none\"), so none can be wrong\n";
    return;
  }
  if (count == 0) {
    out << fmt::format(
        "\nno declared placement contradicts the bytes; {} of {} declarations equal the inferred "
        "placement\n",
        inference.agreeing(),
        inference.tensors.size());
    return;
  }
  out << fmt::format(
      "\nthe bytes contradict the declared placements of {}:\n",
      count == 1 ? "1 class of tensors" : fmt::format("{} classes of tensors", count));
  for (std::size_t i = 0; i < std::min(count, max_rows); ++i) {
    write_contradiction(out, inference, inference.contradictions[i]);
  }
  if (count > max_rows) {
    out << fmt::format("... and {} more (--max-report prints more)\n", count - max_rows);
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
      out << fmt::format(
          "  {} on {}: {}\n", to_string(tensor.id), ranks_text(tensor.ranks), tensor.remark);
    }
  }
  if (count > max_rows) {
    out << fmt::format("  ... and {} more (--max-report prints more)\n", count - max_rows);
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
