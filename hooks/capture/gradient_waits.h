// The gradients that are expected for recorded values, and what has become of each.
//
// A gradient hook sits on every tensor whose gradient is expected. An in-place operator that
// follows, such as the addition of a residual, takes the hook's place in the graph; if it hands the
// gradient on unchanged, a second hook on its result delivers the same gradient earlier. That one
// is the fallback: it is recorded only if the first hook is never called.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/row_parts.h"
#include "hooks/base/snapshot.h"
#include "hooks/capture/microbatches.h"
#include "hooks/capture/recorder.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {

// One gradient that is expected.
struct GradientSlot {
  TensorId id;     // of the gradient; without a path until the value is recorded
  TensorId value;  // of the tensor
  MicrobatchPtr microbatch;
  bool inferred = false;
  bool discarded = false;  // belongs to an operator that was not the module's last
  bool recorded = false;
  bool transparent = true;    // in-place operators since then handed the gradient on unchanged
  std::vector<RowPart> rows;  // where the program has placed them, else empty
  std::optional<Snapshot> fallback;  // what the in-place operator that followed was given
  Turn fallback_turn = {};
  // Of what another module returned before, whose very memory the value is; without a path: none.
  TensorId of_first_name;
  std::vector<int> sums;  // over so many ranks that the program knows of: see Scope::summed()
};
using GradientSlotPtr = std::shared_ptr<GradientSlot>;

// Values without an expected local gradient, see add_local().
inline constexpr std::int64_t kNoLocalGradient = -1;

class GradientWaits {
 public:
  // `recorder` outlives this object.
  explicit GradientWaits(Recorder& recorder) : recorder_(recorder) {}

  // The gradient of `value` is expected in `slot`; nothing happens for a null slot.
  void expect(const GradientSlotPtr& slot, const TensorId& value, Kind gradient_kind);
  // Keeps a slot that the program fills itself. Returns its number.
  [[nodiscard]] std::int64_t add_local(GradientSlotPtr slot);
  // Null for a number that add_local() has not returned in this step.
  [[nodiscard]] GradientSlotPtr local(std::int64_t number) const;

  // Whether a gradient that arrives in `slot` during step `step` is still needed.
  [[nodiscard]] static bool is_awaited(const GradientSlot& slot, std::int64_t step);
  // Keeps the gradient of the fallback hook, in the place of the order that it has now. REQUIRES:
  // the recorder wants it.
  void keep_fallback(GradientSlot& slot, Snapshot gradient);
  // The gradient itself is there. Returns the fallback that came before it.
  [[nodiscard]] std::optional<Snapshot> arrive(GradientSlot& slot);
  // Whether the gradient, or one of its rows, is to be recorded.
  [[nodiscard]] bool wants(const GradientSlot& slot) const;
  // Record the gradient, or note why it cannot be read. The first gradient of an id counts.
  void record(const GradientSlot& slot, Snapshot gradient);
  void note_unreadable(const GradientSlot& slot, const std::string& reason);

  // Backward is over: records the fallbacks whose gradient did not arrive, and notes and counts the
  // other slots that are still empty. Returns that count.
  [[nodiscard]] std::size_t settle();
  void clear();

 private:
  void record(const GradientSlot& slot, Snapshot gradient, const Turn& turn);

  Recorder& recorder_;
  std::vector<GradientSlotPtr> slots_;
  std::vector<GradientSlotPtr> local_slots_;
  std::set<TensorId> recorded_;
};

}  // namespace ttrace
