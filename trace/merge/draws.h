// What random operators drew in a run: records of kind `draw`, whole and by id.
//
// A draw that nobody could read, because an operator keeps it for itself (fused attention), is
// recorded without elements. Nothing can follow it, and nothing that depends on it can be judged.
//
// Thread-safety: immutable after construction; call from any thread.
#pragma once

#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

class TTRACE_API Draws {
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

// Whether somebody has read what was drawn. Requires: at least one shard.
[[nodiscard]] TTRACE_API bool is_readable_draw(std::span<const Shard> shards);

// Merges a draw. Nothing if nobody has read it, if its parts make no whole, or if nobody declares
// where it lies and the ranks hold different values.
[[nodiscard]] TTRACE_API std::optional<MergeResult> whole_draw(std::span<const Shard> shards);

// Names what a run chose, experts (routing.h) and draws: 16 hexadecimal digits, empty if it chose
// nothing. Throws UsageError as read_routing() does.
[[nodiscard]] TTRACE_API std::string digest_of_choices(const Trace& trace);

}  // namespace ttrace
