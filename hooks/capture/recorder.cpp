#include "hooks/capture/recorder.h"

#include "trace/base/kind.h"
#include "trace/base/role.h"
#include "trace/place/boxes.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace ttrace {
namespace {

bool has_gradient_scale(const TensorId& id) {
  return traits_of(id.kind).has_gradient_scale || is_of_quantised_gradient(id.kind, id.slot);
}

// The id of a part's value or gradient. A gradient comes once, wherever its value is computed
// again.
TensorId id_of(const RowPart& part, Kind kind) {
  TensorId id = part.value;
  id.kind = kind;
  id.recompute = id.recompute && (kind == Kind::kInput || kind == Kind::kOutput);
  return id;
}

void set_turn(Record& record, const Turn& turn) {
  record.order = turn.order;
  record.time = turn.time;
}

}  // namespace

Recorder::Recorder(const Environment& environment,
                   Layout layout,
                   Annotations annotations,
                   std::vector<Layout> simulated)
    : environment_(environment),
      layout_(std::move(layout)),
      simulated_(std::move(simulated)),
      annotations_(std::move(annotations)) {}

void Recorder::begin_step(std::int64_t step, const StepClock& clock, WriterThread* writer) {
  step_ = step;
  clock_ = clock;
  writer_ = writer;
  order_ = 0;
  calls_.clear();
  run_again_.clear();
  repeated_.clear();
  notes_.clear();
  not_seen_.clear();
  known_code_ = {};
  scrambled_ = 0;
}

void Recorder::end_step() {
  if (scrambled_ > 0) {
    log(LogLevel::kWarning,
        std::to_string(scrambled_) +
            " tensors are missing in the noise table, because the samples were permuted and no "
            "dimension `b` of that size is annotated; the first is " +
            first_scrambled_);
  }
  writer_ = nullptr;
}

TensorId Recorder::first_id(const Spot& spot, const MicrobatchState* microbatch) const {
  TensorId id;
  id.step = step_;
  id.microbatch = microbatch == nullptr ? kNoMicrobatch : microbatch->index;
  id.kind = spot.kind;
  id.path = spot.path;
  id.slot = spot.slot;
  id.recompute = spot.run.again;
  return id;
}

TensorId Recorder::next_id(const Spot& spot, const MicrobatchState* microbatch) {
  TensorId id = first_id(spot, microbatch);
  TTRACE_CHECK(is_canonical_path(id.path),
               UsageError,
               "'",
               id.path,
               "' is not a valid path of a ",
               name_of(id.kind),
               "; use parts of letters, digits, _ and - joined by dots");
  id.call = calls_.take(id, spot.run);
  if (id.recompute && !run_again_.insert(id).second) {
    repeated_.insert(id);
  }
  return id;
}

bool Recorder::wants(const std::vector<RowPart>& parts, Kind kind) const {
  return std::any_of(
      parts.begin(), parts.end(), [&](const RowPart& part) { return wants(id_of(part, kind)); });
}

bool Recorder::wants_next(const Spot& spot, const MicrobatchState* microbatch) const {
  if (!environment_.filter && environment_.untraced.empty() && !environment_.leads_up(step_)) {
    return true;  // the usual case costs nothing
  }
  TensorId id = first_id(spot, microbatch);
  id.call = calls_.next(id, spot.run);
  return wants(id);
}

std::optional<Record> Recorder::begin_record(const TensorId& id,
                                             ElementType type,
                                             std::vector<std::int64_t> shape,
                                             const Options& options) {
  if (!wants(id)) {
    return std::nullopt;
  }
  Record record;
  record.id = id;
  record.type = type;
  record.shape = std::move(shape);
  auto placement = place(id, record.shape, options);
  if (!placement) {
    if (scrambled_++ == 0) {
      first_scrambled_ = to_string(id);
    }
    return std::nullopt;
  }
  record.placement = *std::move(placement);
  record.undeclared = is_undeclared(id, record.shape, options);
  record.samples = samples_of(id, record.placement, options);
  set_turn(record, options.turn.order == 0 ? take_turn() : options.turn);
  record.inferred = options.inferred;
  record.lacks_noise = options.lacks_noise;
  record.needs_no_gradient = options.needs_no_gradient;
  return record;
}

void Recorder::record(const TensorId& id, Snapshot values, const Options& options) {
  auto record = begin_record(id, values.type, std::move(values.shape), options);
  if (!record) {
    return;
  }
  Options same = options;  // of the other ranks: all have the same place in the step
  same.turn = {record->order, record->time};
  writer_->append(*std::move(record), std::move(values.bytes), options.rank);
  for (Snapshot& other : values.others) {
    ++same.rank;
    if (auto of_rank = begin_record(id, other.type, std::move(other.shape), same)) {
      writer_->append(*std::move(of_rank), std::move(other.bytes), same.rank);
    }
  }
}

void Recorder::record_on_device(const TensorId& id,
                                ElementType type,
                                std::vector<std::int64_t> shape,
                                std::unique_ptr<const DeviceValues> values,
                                const Options& options) {
  if (auto record = begin_record(id, type, std::move(shape), options)) {
    writer_->append_on_device(*std::move(record), std::move(values));
  }
}

void Recorder::record_rows(const std::vector<RowPart>& parts,
                           Kind kind,
                           const TensorCopy& copy,
                           Turn turn,
                           bool needs_no_gradient) {
  for (const RowPart& part : parts) {
    record(id_of(part, kind),
           select_rows(copy, part),
           {.microbatch = part.microbatch.get(),
            .turn = turn,
            .rows = &part,
            .needs_no_gradient = needs_no_gradient});
    turn = {};  // the first has the place that was kept
  }
}

void Recorder::note_unreadable(const TensorId& id, const std::string& reason) {
  if (wants(id)) {
    note_unreadable(to_string(id), reason);
  }
}

void Recorder::note_unreadable(const std::string& what, const std::string& reason) {
  note(
      reason == kInGraph
          ? "tensors of a graph that a stream records (a CUDA graph) are not recorded, because its "
            "recording must not be disturbed and the graph calls no hooks when it runs; turn "
            "graphs off in traced steps"
          : what + " " + reason + ", so it was not recorded");
}

void Recorder::record_scalar(const std::string& name, double value) {
  Record record;
  record.id = next_id({Kind::kScalar, name}, nullptr);
  if (!wants(record.id)) {
    return;
  }
  record.type = ElementType::kF64;
  record.placement = whole({});
  set_turn(record, take_turn());
  std::vector<std::byte> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  writer_->append(std::move(record), std::move(bytes));
}

void Recorder::edge(const TensorId& consumer, const TensorId& producer) {
  if (wants(consumer) && wants(producer)) {
    const Turn turn = take_turn();
    writer_->edge({consumer, producer, turn.order, turn.time});
  }
}

void Recorder::note(const std::string& remark) {
  if (notes_.insert(remark).second) {
    writer_->note(remark);
  }
}

void Recorder::not_seen(const NotSeen& fact) {
  if (not_seen_.insert(fact).second) {
    writer_->not_seen(fact);
  }
}

void Recorder::code(CodeRole role, const std::string& path, const std::string& text) {
  if (known_code_.at(static_cast<std::size_t>(role)).insert(path).second) {
    writer_->code(role, path, text);
  }
}

std::optional<Placement> Recorder::place(const TensorId& id,
                                         const std::vector<std::int64_t>& shape,
                                         const Options& options) const {
  if (options.placed != nullptr) {
    return options.placed->placement;
  }
  Placement placement = placement_of(id, shape, options);
  if (options.microbatch != nullptr) {
    if (has_gradient_scale(id)) {
      placement.scale = options.microbatch->gradient_scale;
    }
    if (options.rows == nullptr && !unscramble(id, shape, *options.microbatch, placement)) {
      return std::nullopt;
    }
  }
  return placement;
}

bool Recorder::is_undeclared(const TensorId& id,
                             const std::vector<std::int64_t>& shape,
                             const Options& options) const {
  if (layout_.world_size == 1 || shape.empty() || options.rows != nullptr ||
      options.flat != nullptr || !is_placed(id.kind)) {
    return false;
  }
  if (options.placed != nullptr) {
    return options.placed->is_guess;
  }
  const auto dims = annotations_.find(id.kind, placed_as(id, options), id.slot);
  return !dims || dims->is_guess;
}

std::optional<SampleDim> Recorder::samples_of(const TensorId& id,
                                              const Placement& placement,
                                              const Options& options) const {
  if (options.placed != nullptr) {
    return options.placed->samples;
  }
  const bool may_have = traits_of(id.kind).holds_samples && options.microbatch != nullptr &&
                        options.rows == nullptr && options.flat == nullptr;
  const auto dims = may_have ? annotations_.find(id.kind, id.path, id.slot) : std::nullopt;
  return dims ? sample_dim(*dims, placement, annotations_.sizes()) : std::nullopt;
}

std::optional<Recorder::Placed> Recorder::place_like(const TensorId& id,
                                                     const std::vector<std::int64_t>& like,
                                                     const std::vector<std::int64_t>& shape,
                                                     const MicrobatchState* microbatch,
                                                     std::size_t rank) const {
  const Options options{.microbatch = microbatch, .rank = rank};
  std::optional<Placement> placement = place(id, like, options);
  if (!placement || placement->partial_count > 1 || placement->dims.size() != like.size()) {
    return std::nullopt;
  }
  const auto same = std::mismatch(like.begin(), like.end(), shape.begin(), shape.end());
  const auto shared = static_cast<std::size_t>(same.first - like.begin());
  const std::span<const DimPlacement> others = std::span(placement->dims).subspan(shared);
  if ((shared == 0 && !shape.empty()) || !is_identity(others)) {
    return std::nullopt;
  }
  Placed result{
      whole(shape), is_undeclared(id, like, options), samples_of(id, *placement, options)};
  if (result.samples && result.samples->dim >= shared) {
    result.samples.reset();
  }
  std::copy_n(placement->dims.begin(), shared, result.placement.dims.begin());
  return result;
}

Recorder::Placed Recorder::place_by_rank(const std::vector<std::int64_t>& shape) const {
  const std::string_view samples = patterns_of(Role::kDataParallel, annotations_.roles());
  std::int64_t count = 1;
  std::int64_t number = 0;
  for (const Axis& axis : layout_.axes) {
    if (axis.follows.empty() && fits_any(samples, axis.name)) {
      count *= axis.size;
      number = number * axis.size + axis.coordinate;
    }
  }
  const std::int64_t extent = shape.front();
  Placed result{.placement = whole(shape), .is_guess = true, .samples = {}};
  result.placement.dims.front() = {.local_size = extent,
                                   .logical_size = count * extent,
                                   .segments = {{0, number * extent, extent}}};
  return result;
}

bool Recorder::cuts_only_samples() const {
  const std::string_view samples = patterns_of(Role::kDataParallel, annotations_.roles());
  return std::ranges::all_of(layout_.axes, [&](const Axis& axis) {
    return axis.size == 1 || fits_any(samples, axis.name);
  });
}

const std::string& Recorder::placed_as(const TensorId& id, const Options& options) const {
  return options.like == nullptr || annotations_.find(id.kind, id.path, id.slot) ? id.path
                                                                                 : *options.like;
}

Placement Recorder::placement_of(const TensorId& id,
                                 const std::vector<std::int64_t>& shape,
                                 const Options& options) const {
  Placement placement;
  try {
    placement = annotations_.placement(id.kind,
                                       placed_as(id, options),
                                       id.slot,
                                       options.flat == nullptr ? shape : options.flat->shape,
                                       layout_of(options.rank));
  } catch (const Error& error) {
    TTRACE_THROW(UsageError, to_string(id), " does not fit its annotation: ", error.message());
  }
  if (options.rows != nullptr) {
    placement.dims[options.rows->dim] = options.rows->placement;
  }
  if (options.flat != nullptr) {
    TTRACE_CHECK(shape.size() == 1,
                 UsageError,
                 to_string(id),
                 " is a flat shard with ",
                 shape.size(),
                 " dimensions; pass a one-dimensional tensor, or leave flat_first out");
    placement.flat = FlatRange{options.flat->first, shape.front()};
    try {
      validate(placement);
    } catch (const Error& error) {
      TTRACE_THROW(UsageError, to_string(id), " exceeds its parameter: ", error.message());
    }
  }
  return placement;
}

bool Recorder::unscramble(const TensorId& id,
                          const std::vector<std::int64_t>& shape,
                          const MicrobatchState& microbatch,
                          Placement& placement) const {
  if (microbatch.order.empty() || !traits_of(id.kind).holds_samples) {
    return true;
  }
  const auto dims = annotations_.find(id.kind, id.path, id.slot);
  const bool is_weight = id.kind == Kind::kOperand && id.slot == kWeightSlot;
  const bool is_scale_without_samples =
      id.kind == Kind::kScale &&
      (shape.empty() || (dims && !dims->index_of("b").has_value()));  // of a whole tensor, a weight
  if (is_weight || is_scale_without_samples) {
    return true;
  }
  const auto samples = dims ? dims->index_of("b") : std::nullopt;
  if (!samples || shape[*samples] != static_cast<std::int64_t>(microbatch.order.size())) {
    return false;
  }
  placement = permute(std::move(placement), *samples, microbatch.order);
  return true;
}

}  // namespace ttrace
