#include "analysis/checks/structure.h"

#include "analysis/findings/wording.h"
#include "trace/base/index_set.h"
#include "trace/file/record.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace ttrace {
namespace {

Symptom symptom_of(MergeDefect defect) {
  switch (defect) {
    case MergeDefect::kShapesContradict:
      return Symptom::kRanksContradict;
    case MergeDefect::kGap:
      return Symptom::kGap;
    case MergeDefect::kOverlap:
      return Symptom::kOverlap;
    case MergeDefect::kReplicasDisagree:
      return Symptom::kReplicasDisagree;
    case MergeDefect::kAddendsMissing:
      return Symptom::kAddendsMissing;
  }
  return Symptom::kNone;
}

// The rows of a sparse dimension; a side without one holds all rows.
IndexSet rows_of(const MergeResult& side, std::size_t dim) {
  return side.held ? side.held->rows : IndexSet{{0, side.shape[dim]}};
}

// "only the candidate holds 4 rows (3+17:20)", or nothing.
std::string rows_text(const IndexSet& rows, const std::string& holder) {
  if (rows.empty()) {
    return "";
  }
  return fmt::format(
      "only the {} holds {} ({})", holder, counted(size_of(rows), "row"), to_string(rows));
}

}  // namespace

std::vector<int> ranks_of(std::span<const Shard> shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    if (ranks.empty() || ranks.back() != shard.rank) {  // of several micro-batches
      ranks.push_back(shard.rank);
    }
  }
  return ranks;
}

const Shard* shard_of(std::span<const Shard> shards, int rank) {
  const auto found = std::ranges::find(shards, rank, &Shard::rank);
  return found == shards.end() ? nullptr : &*found;
}

ElementType storage_type(std::span<const Shard> shards) {
  return shards.front().record->type;
}

std::vector<Check> structure_checks(const MergeResult& merged, double of_copies) {
  std::vector<Check> checks;
  for (const MergeFinding& finding : merged.findings) {
    if (finding.defect == MergeDefect::kReplicasDisagree && of_copies > 0.0 &&
        finding.difference <= of_copies) {
      continue;
    }
    checks.push_back(failed(Question::kStructure, finding.message, finding.ranks));
    checks.back().narrower = symptom_of(finding.defect);
  }
  return checks;
}

bool is_part_missing(const Check& check) {
  return check.symptom() == Symptom::kGap || check.symptom() == Symptom::kAddendsMissing;
}

MergeResult merge_reference(const TensorId& id, std::span<const Shard> shards, bool interrupted) {
  MergeResult result = merge(shards);
  if (interrupted) {
    std::erase_if(result.findings, [](const MergeFinding& finding) {
      return finding.defect == MergeDefect::kGap || finding.defect == MergeDefect::kAddendsMissing;
    });
  }
  TTRACE_CHECK(result.findings.empty(),
               UsageError,
               fmt::format("the reference contradicts itself at {}: {}; run the reference on one "
                           "device, or correct its annotations",
                           to_string(id),
                           result.findings.front().message));
  return result;
}

namespace {

// What training keeps may have more digits than the reference's, as in F32 beside BF16 parameters.
// An activation or a parameter of another type says that the programs compute in other precisions.
bool may_have_more_digits(Kind kind) {
  return kind == Kind::kBuffer || kind == Kind::kMainGrad || kind == Kind::kMaster ||
         kind == Kind::kState || kind == Kind::kStateBefore || kind == Kind::kCopy ||
         is_moment(kind);
}

}  // namespace

std::vector<Check> type_checks(std::span<const Shard> reference,
                               std::span<const Shard> candidate,
                               const std::string& where) {
  const ElementType expected = storage_type(reference);
  const ElementType found = storage_type(candidate);
  const bool keeps_more = may_have_more_digits(reference.front().record->id.kind) &&
                          is_floating(expected) && is_floating(found) &&
                          element_size(found) > element_size(expected);
  if (expected == found || keeps_more) {
    return {};
  }
  return {failed(
      Question::kType,
      fmt::format(
          "its element type is {}, but {} in the {}", name_of(found), name_of(expected), where))};
}

std::vector<Check> shape_checks(const MergeResult& expected,
                                const MergeResult& found,
                                const std::string& where) {
  if (!found.has_values() || have_one_shape(expected, found)) {
    return {};
  }
  const std::string sentence =
      expected.shape == found.shape
          ? fmt::format("its rows lie along dimension {}, but along dimension {} in the {}",
                        found.held->dim,
                        expected.held->dim,
                        where)
          : fmt::format("its logical shape is {}, but {} in the {}",
                        shape_text(found.shape),
                        shape_text(expected.shape),
                        where);
  return {failed(Question::kShape, sentence)};
}

bool have_one_shape(const MergeResult& expected, const MergeResult& found) {
  const bool have_rows = expected.held && found.held;
  return found.has_values() && expected.shape == found.shape &&
         (!have_rows || expected.held->dim == found.held->dim);
}

std::vector<Check> row_checks(MergeResult& expected,
                              MergeResult& found,
                              const std::string& where,
                              const std::string& what) {
  if (expected.held == found.held) {
    return {};
  }
  const std::size_t dim = expected.held ? expected.held->dim : found.held->dim;
  const IndexSet in_expected = rows_of(expected, dim);
  const IndexSet in_found = rows_of(found, dim);
  const std::string expected_only = rows_text(difference(in_expected, in_found), where);
  const std::string found_only = rows_text(difference(in_found, in_expected), what);
  keep_common_rows(expected, found);
  if (expected_only.empty() && found_only.empty()) {
    return {};
  }
  return {failed(Question::kRows,
                 fmt::format("in dimension {}, {}{}{}",
                             dim,
                             expected_only,
                             expected_only.empty() || found_only.empty() ? "" : ", and ",
                             found_only))};
}

}  // namespace ttrace
