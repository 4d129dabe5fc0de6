// T0: do the two sides record one tensor, of one shape and type, held by the ranks without gaps?
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/check.h"
#include "trace/merge/merge.h"

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <span>
#include <string>
#include <vector>

namespace ttrace {

[[nodiscard]] std::vector<int> ranks_of(std::span<const Shard> shards);
// Null where the rank holds none of the tensor.
[[nodiscard]] const Shard* shard_of(std::span<const Shard> shards, int rank);

// Element type of the records: merging widens partial sums to f64.
[[nodiscard]] ElementType storage_type(std::span<const Shard> shards);

// Contradictions between the ranks' parts of one tensor. Copies may differ by `of_copies`
// (Bounds::of_copies).
[[nodiscard]] std::vector<Check> structure_checks(const MergeResult& merged, double of_copies);

// Whether a failed check only says that a part is missing, which an interrupted step explains.
[[nodiscard]] bool is_part_missing(const Check& check);

// Merges the reference's parts. Throws UsageError if they contradict each other, since there is
// nothing to compare with then; in an `interrupted` step parts may be missing.
[[nodiscard]] MergeResult merge_reference(const TensorId& id,
                                          std::span<const Shard> shards,
                                          bool interrupted);

// `where` names what the other side is: "reference", "first forward". Returns nothing if both are
// equal, or if a buffer keeps more digits than the reference's: a program may compute a table in
// F32 where another one rounds it with the parameters, and its values are compared.
// Requires: at least one shard on each side.
[[nodiscard]] std::vector<Check> type_checks(std::span<const Shard> reference,
                                             std::span<const Shard> candidate,
                                             const std::string& where);
// Returns nothing if the two can be compared, or if `found` is not a tensor, which
// structure_checks() reports.
[[nodiscard]] std::vector<Check> shape_checks(const MergeResult& expected,
                                              const MergeResult& found,
                                              const std::string& where);
[[nodiscard]] bool have_one_shape(const MergeResult& expected, const MergeResult& found);

// Rows of a sparse dimension that one side alone holds; leaves those that both hold in the two
// tensors. `where` and `what` name the sides. Requires: have_one_shape().
[[nodiscard]] std::vector<Check> row_checks(MergeResult& expected,
                                            MergeResult& found,
                                            const std::string& where,
                                            const std::string& what);

}  // namespace ttrace
