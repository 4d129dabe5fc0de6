// What random operators drew in a run: records of kind `draw`, whole and by id.
//
// Within modules they draw masks and noise. Outside of them, in a record of the whole step, they
// draw data: samples, times, what is added to a sample. Ranks draw data for samples of their own,
// so that their draws lie behind one another, in the order of the ranks, unless all draw the same.
// A permutation numbers the rows of its rank, which lie behind those of the ranks before it.
//
// A draw that nobody could read, because an operator keeps it for itself (fused attention), is
// recorded without elements. Nothing can follow it, and nothing that depends on it can be judged.
//
// Thread-safety: immutable after construction; call from any thread.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

class Draws {
 public:
  // Keeps references to the trace's files.
  explicit Draws(const Trace& trace);

  [[nodiscard]] bool empty() const { return shards_.empty(); }
  // By id. Recomputed forwards are left out, because they must repeat the first one.
  [[nodiscard]] const std::map<TensorId, std::vector<Shard>>& all() const { return shards_; }
  // The whole logical draw. Nothing where the trace has none of this id, or none that can be
  // followed: see whole_draw().
  [[nodiscard]] std::optional<MergeResult> of(const TensorId& id) const;

 private:
  std::map<TensorId, std::vector<Shard>> shards_;
};

[[nodiscard]] bool is_draw_of_data(const TensorId& id);

// Whether somebody has read what was drawn. Requires: at least one shard.
[[nodiscard]] bool is_readable_draw(std::span<const Shard> shards);

// Whether ranks with samples of their own have all drawn the same data.
[[nodiscard]] bool repeats_data(std::span<const Shard> shards);

// Merges a draw. Nothing if nobody has read it, if its parts make no whole, or if nobody declares
// where it lies and the ranks hold different values. What repeats_data() is whole on every rank.
[[nodiscard]] std::optional<MergeResult> whole_draw(std::span<const Shard> shards);

// The candidate's first draw of data that is not one of the reference's, where most of what it
// draws is not: seeds differ, and data are the same only if the reference follows them. Programs
// with common seeds draw the same numbers, although in other calls or on other ranks. What
// repeats_data() does not count. Nothing where the reference draws no data.
[[nodiscard]] std::optional<TensorId> data_of_its_own(const Draws& reference,
                                                      const Draws& candidate);

// Whether both hold the same numbers of one type.
[[nodiscard]] bool is_same(const MergeResult& own, const MergeResult& other);

// Names what a run chose, experts (routing.h) and draws: 16 hexadecimal digits, empty if it chose
// nothing. Requires: the trace as its program wrote it, whose samples nobody aligned. Throws
// UsageError as read_routing() does.
[[nodiscard]] std::string digest_of_choices(const Trace& trace);

}  // namespace ttrace
