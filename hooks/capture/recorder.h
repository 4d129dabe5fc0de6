// Turns a captured tensor into a record: counts its call, filters, places, scales, numbers it and
// hands it to the writer thread.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/environment.h"
#include "hooks/base/microbatch_state.h"
#include "hooks/base/row_parts.h"
#include "hooks/base/snapshot.h"
#include "hooks/base/step_clock.h"
#include "hooks/capture/call_numbers.h"
#include "hooks/write/writer_thread.h"
#include "trace/base/kind.h"
#include "trace/base/not_seen.h"
#include "trace/file/code_lines.h"
#include "trace/file/record.h"

#include <ttrace/annotations.h>
#include <ttrace/layout.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ttrace {

class Origins;

// A tensor of a module, before its call is counted.
struct Spot {
  Kind kind = Kind::kOutput;
  std::string path;
  int slot = 0;
  ForwardRun run{};
  int addends = 1;  // ranks whose addends the value is the sum of, or an input's gradient
};

// The place of a record in its step: its number in the order, from 1, and its time.
struct Turn {
  std::uint64_t order = 0;
  std::uint64_t time = 0;  // see Record::time
};

// A one-dimensional tensor that holds the elements from `first` on of a parameter's local tensor.
struct FlatShard {
  std::int64_t first = 0;
  std::vector<std::int64_t> shape;  // of the parameter
};

class Recorder {
 public:
  // `simulated`: the layouts of the other ranks that this process simulates.
  Recorder(const Environment& environment,
           Layout layout,
           Annotations annotations,
           std::vector<Layout> simulated = {});

  // How many ranks this process records: those that it simulates, or its own.
  [[nodiscard]] std::size_t ranks() const { return 1 + simulated_.size(); }
  [[nodiscard]] int world_size() const { return layout_.world_size; }

  void begin_step(std::int64_t step, const StepClock& clock, WriterThread* writer);
  // Warns of what was left out; the writer is not used any more.
  void end_step();
  [[nodiscard]] bool recording() const { return writer_ != nullptr; }

  // See Annotations::derive(). Holds from now on.
  void derive(const std::string& path,
              const std::string& field,
              int slot,
              const std::string& dims) {
    annotations_.derive(path, field, slot, dims);
  }

  // The next call's id. `microbatch` null: a tensor of the whole step.
  [[nodiscard]] TensorId next_id(const Spot& spot, const MicrobatchState* microbatch);
  [[nodiscard]] bool wants(const TensorId& id) const {
    return !environment_.leads_up(id.step) && !repeated_.contains(id) &&
           ((!environment_.filter && environment_.untraced.empty()) || is_of_zoom(id.kind) ||
            environment_.wants(to_string(id)));
  }

  // In noise passes: knows which tensors have no noise. Null otherwise.
  void set_origins(const Origins* origins) { origins_ = origins; }
  [[nodiscard]] const Origins* origins() const { return origins_; }

  // Where a tensor lies of which annotations say nothing.
  struct Placed {
    Placement placement;
    bool is_guess = false;                            // nobody declared it
    std::optional<SampleDim> samples = std::nullopt;  // see Record
  };

  struct Options {
    const MicrobatchState* microbatch = nullptr;
    bool inferred = false;
    Turn turn = {};                   // order 0: the next one
    const RowPart* rows = nullptr;    // where the program has placed them
    const FlatShard* flat = nullptr;  // not the annotated tensor, but a part of it
    // A parameter as which the tensor lies, unless its own path is annotated.
    const std::string* like = nullptr;
    const Placed* placed = nullptr;  // where it lies; annotations say nothing of it
    bool lacks_noise = false;        // see Record
    bool needs_no_gradient = false;  // see Record
    std::size_t rank = 0;            // of those that this process simulates
  };
  // Whether a record needs no values (TTRACE_COUNT): snapshots then hold type and shape alone.
  [[nodiscard]] bool only_counts() const { return environment_.count_only; }
  // Whether one of the parts is wanted, as a tensor of `kind`.
  [[nodiscard]] bool wants(const std::vector<RowPart>& parts, Kind kind) const;
  // Whether the tensor that next_id() would name next is wanted.
  [[nodiscard]] bool wants_next(const Spot& spot, const MicrobatchState* microbatch) const;

  // Does nothing for an id that is not wanted. Throws UsageError that names the id where the
  // annotation does not fit.
  void record(const TensorId& id, Snapshot values, const Options& options);
  // The same for values that stay on their device. Requires: takes_device_values().
  void record_on_device(const TensorId& id,
                        ElementType type,
                        std::vector<std::int64_t> shape,
                        std::unique_ptr<const DeviceValues> values,
                        const Options& options);
  [[nodiscard]] bool takes_device_values() const { return writer_->takes_device_values(); }
  // Records every part of a tensor whose rows the program has placed; `kind` is the value's or its
  // gradient's. `turn` as in Options, for the first part.
  void record_rows(const std::vector<RowPart>& parts,
                   Kind kind,
                   const TensorCopy& copy,
                   Turn turn,
                   bool needs_no_gradient = false);
  // Notes that a tensor was not recorded; `reason` as unreadable() says it. All tensors of graphs
  // share one note per step.
  void note_unreadable(const TensorId& id, const std::string& reason);
  // `what` without an id.
  void note_unreadable(const std::string& what, const std::string& reason);
  void record_scalar(const std::string& name, double value);
  // The placement of a tensor. Returns nothing if the order of permuted samples cannot be restored,
  // because no dimension of samples is annotated.
  [[nodiscard]] std::optional<Placement> place(const TensorId& id,
                                               const std::vector<std::int64_t>& shape,
                                               const Options& options) const;
  // Where a tensor of the shape `shape` lies whose first dimensions are those of the activation
  // `id`, of the shape `like`. Nothing if there is no such dimension, if the activation is cut
  // along another one, or if it is an addend of a sum.
  [[nodiscard]] std::optional<Placed> place_like(const TensorId& id,
                                                 const std::vector<std::int64_t>& like,
                                                 const std::vector<std::int64_t>& shape,
                                                 const MicrobatchState* microbatch,
                                                 std::size_t rank = 0) const;
  // Where a tensor lies of which each rank has one of its own for its samples: along the first
  // dimension, in the order of the ranks. Requires: a dimension.
  [[nodiscard]] Placed place_by_rank(const std::vector<std::int64_t>& shape) const;
  // Whether this run divides nothing but samples, and so knows more of where a tensor lies.
  [[nodiscard]] bool cuts_only_samples() const;
  // Takes the next turn for something recorded later.
  [[nodiscard]] Turn take_turn() { return {++order_, clock_.elapsed()}; }

  void flush() { writer_->flush(); }
  // `norms` as in WriterThread::sum().
  void sum(const RoundedSum& sum, std::vector<Snapshot> norms) {
    writer_->sum(sum, std::move(norms));
  }
  // Records an edge if both ends are recorded.
  void edge(const TensorId& consumer, const TensorId& producer);
  // Each remark once per step.
  void note(const std::string& remark);
  // Each fact once per step.
  void not_seen(const NotSeen& fact);
  // Where the code of a module stands, or where the program calls it; the first text of a path and
  // step counts.
  void code(CodeRole role, const std::string& path, const std::string& text);
  [[nodiscard]] bool knows_code(CodeRole role, const std::string& path) const {
    return known_code_.at(static_cast<std::size_t>(role)).contains(path);
  }

 private:
  // Without its call.
  [[nodiscard]] TensorId first_id(const Spot& spot, const MicrobatchState* microbatch) const;
  // A record without its values; nothing if it is not wanted, or has no place.
  [[nodiscard]] std::optional<Record> begin_record(const TensorId& id,
                                                   ElementType type,
                                                   std::vector<std::int64_t> shape,
                                                   const Options& options);
  // Whether nobody said where it lies, so that its placement is a guess.
  [[nodiscard]] bool is_undeclared(const TensorId& id,
                                   const std::vector<std::int64_t>& shape,
                                   const Options& options) const;
  // Which dimension holds samples.
  [[nodiscard]] std::optional<SampleDim> samples_of(const TensorId& id,
                                                    const Placement& placement,
                                                    const Options& options) const;
  // The path whose annotation says where a tensor lies.
  [[nodiscard]] const std::string& placed_as(const TensorId& id, const Options& options) const;
  [[nodiscard]] Placement placement_of(const TensorId& id,
                                       const std::vector<std::int64_t>& shape,
                                       const Options& options) const;
  // Puts permuted samples back. False where it cannot.
  [[nodiscard]] bool unscramble(const TensorId& id,
                                const std::vector<std::int64_t>& shape,
                                const MicrobatchState& microbatch,
                                Placement& placement) const;

  [[nodiscard]] const Layout& layout_of(std::size_t rank) const {
    return rank == 0 ? layout_ : simulated_[rank - 1];
  }

  const Environment environment_;
  const Layout layout_;
  const std::vector<Layout> simulated_;  // of the ranks after this one
  Annotations annotations_;
  const Origins* origins_ = nullptr;
  WriterThread* writer_ = nullptr;  // null outside traced steps
  std::int64_t step_ = 0;
  StepClock clock_;
  std::uint64_t order_ = 0;
  CallNumbers calls_;
  std::set<TensorId> run_again_;
  std::set<TensorId> repeated_;  // ran again in a later pass of backward too: recorded once
  std::set<std::string> notes_;
  std::set<NotSeen> not_seen_;
  std::array<std::unordered_set<std::string>, 2> known_code_;  // paths by role
  std::uint64_t scrambled_ = 0;                                // left out of the noise table
  std::string first_scrambled_;
};

}  // namespace ttrace
