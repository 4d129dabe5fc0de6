#include "trace/samples/placed_records.h"

#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/merge/shard.h"
#include "trace/samples/padding.h"
#include "trace/samples/row_digests.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

TensorId in_microbatch(TensorId id, std::int64_t microbatch) {
  id.microbatch = microbatch;
  return id;
}

// The gradient of one micro-batch.
bool is_gradient_of_graph(Kind kind) {
  return is_gradient(kind) && !traits_of(kind).of_update;
}

class RecordPlacer {
 public:
  RecordPlacer(const StepTrace& reference, const DealtSamples& dealt, const DataRows& rows)
      : dealt_(dealt), rows_(rows) {
    for (const auto& [sample, read] : rows.candidate) {
      if (!read.padded.empty()) {
        padded_.insert(sample.microbatch);
      }
    }
    for (const RankFile& file : reference.ranks) {
      for (const Record& record : file.records()) {
        reference_.try_emplace(record.id, shard_of(file, record));
      }
    }
  }

  // Which tensors have samples in some micro-batch of a rank, whose sizes say so.
  void find_clear(const RankFile& file) {
    for (const Record& record : file.records()) {
      if (record.samples && is_moved(record.id) && !is_unclear(record)) {
        clear_.insert(in_microbatch(record.id, kNoMicrobatch));
      }
    }
  }

  void place(RankFile& file) {
    kept_.clear();
    own_.clear();
    for (const Record& record : file.records()) {
      if (is_moved(record.id)) {
        own_.try_emplace(record.id, &record);
      }
    }
    for (const Record& record : file.records()) {
      if (!is_moved(record.id)) {
        kept_.push_back(record);
      } else {
        keep_data(record);
        place_moved(file, record);
      }
    }
    set_links(file);
    file.set_records(std::move(kept_));
  }

  // Of what the reference has.
  [[nodiscard]] std::set<TensorId> left_out() {
    std::erase_if(left_out_, [&](const TensorId& id) { return in_reference(id) == nullptr; });
    return std::move(left_out_);
  }

 private:
  [[nodiscard]] bool is_moved(const TensorId& id) const {
    return dealt_.moved().contains(id.microbatch) || dealt_.incomplete().contains(id.microbatch);
  }

  // The micro-batch of the reference that this one makes up, alone or with other whole ones.
  [[nodiscard]] std::optional<std::int64_t> whole_target(std::int64_t microbatch) const {
    const auto target = dealt_.only_target(microbatch);
    const bool is_made_of_whole_ones =
        target && dealt_.complete().contains(*target) &&
        std::ranges::all_of(dealt_.sources(*target), [&](std::int64_t source) {
          return dealt_.only_target(source) == target;
        });
    return is_made_of_whole_ones ? target : std::nullopt;
  }

  // The same, if it is alone.
  [[nodiscard]] std::optional<std::int64_t> partner(std::int64_t microbatch) const {
    const auto target = whole_target(microbatch);
    return target && dealt_.sources(*target).size() == 1 ? target : std::nullopt;
  }

  [[nodiscard]] const Record* in_reference(const TensorId& id) const {
    const auto found = reference_.find(id);
    return found == reference_.end() ? nullptr : found->second.record;
  }

  void leave_out(const TensorId& id) {
    for (const std::int64_t target : dealt_.targets(id.microbatch)) {
      left_out_.insert(in_microbatch(id, target));
    }
  }

  [[nodiscard]] bool is_data(const TensorId& id) const {
    TensorId name = in_microbatch(id, kNoMicrobatch);
    name.step = 0;
    return std::ranges::find(rows_.names, name) != rows_.names.end();
  }

  void keep_data(const Record& record) {
    const Record* const other = in_reference(record.id);
    if (dealt_.incomplete().contains(record.id.microbatch) && other != nullptr &&
        is_data(record.id) &&
        other->placement.logical_shape() == record.placement.logical_shape()) {
      kept_.push_back(record);
    }
  }

  void place_moved(RankFile& file, const Record& record) {
    const auto target = whole_target(record.id.microbatch);
    if (record.samples && !record.placement.flat) {
      place_samples(file, record);
    } else if (!target) {
      leave_out(record.id);
    } else if (!is_independent(record, *target)) {
      leave_out(record.id);
    } else if (is_gradient_of_graph(record.id.kind)) {
      place_addend(record, *target);
    } else if (record.id.microbatch == values_of(record, *target).front()->id.microbatch) {
      kept_.push_back(record);  // that of the other micro-batches is the same
      kept_.back().id.microbatch = *target;
    }
  }

  // The rank's records of this name in all micro-batches that make up the reference's.
  [[nodiscard]] std::vector<const Record*> values_of(const Record& record,
                                                     std::int64_t target) const {
    std::vector<const Record*> values;
    for (const std::int64_t source : dealt_.sources(target)) {
      const auto found = own_.find(in_microbatch(record.id, source));
      if (found != own_.end()) {
        values.push_back(found->second);
      }
    }
    return values;
  }

  // Whether a tensor without a dimension of samples means the same in the reference's micro-batch.
  // It may hold samples nevertheless, where nobody has said so.
  [[nodiscard]] bool is_independent(const Record& record, std::int64_t target) const {
    if (record.id.kind == Kind::kParamGrad) {
      return true;
    }
    const Record* const other = in_reference(in_microbatch(record.id, target));
    if (other != nullptr && padded_.contains(record.id.microbatch) &&
        other->placement.logical_shape() != record.placement.logical_shape()) {
      return false;  // it has positions
    }
    const bool is_alone = dealt_.sources(target).size() == 1;
    if (is_alone && (dealt_.is_natural(target) || element_count(record.shape) == 1)) {
      return true;
    }
    if (is_gradient_of_graph(record.id.kind)) {  // as what it is the gradient of
      TensorId id = record.id;
      id.kind = id.kind == Kind::kGradInput ? Kind::kInput : Kind::kOutput;
      const auto value = own_.find(id);
      return value != own_.end() && !value->second->samples &&
             is_independent(*value->second, target);
    }
    const auto is_same = [&](const Record* value) {
      return value->digest == record.digest && value->type == record.type &&
             value->placement == record.placement;
    };
    if (other != nullptr && is_same(other)) {
      return true;
    }
    return !is_alone && record.id.kind != Kind::kLoss &&
           std::ranges::all_of(values_of(record, target), is_same);
  }

  void place_samples(RankFile& file, const Record& record) {
    for (const std::int64_t target : dealt_.targets(record.id.microbatch)) {
      if (dealt_.complete().contains(target) && !place_part(file, record, target)) {
        left_out_.insert(in_microbatch(record.id, target));
      }
    }
  }

  // The reference's samples of a micro-batch that a record holds, by the lengths that data have of
  // them; all in one group where these are as in the reference.
  using Held = std::map<Lengths, std::set<std::int64_t>>;

  // Nothing where its samples are not those that data speak of.
  [[nodiscard]] std::optional<Held> held_of(const Record& record, std::int64_t target) const {
    Held held;
    for (const auto& [sample, row] : rows_of(record)) {
      const ClaimedSample claimed{record.id.microbatch, record.samples->count, sample};
      if (!dealt_.has(claimed)) {
        return std::nullopt;
      }
      const auto place = dealt_.place_of(claimed);
      if (place && place->microbatch == target) {
        const auto& padded = rows_.candidate.at(claimed).padded;
        const auto found = padded.find(target);
        held[found == padded.end() ? Lengths() : found->second].insert(place->sample);
      }
    }
    return held;
  }

  static std::set<Widths> widths_of(const Held& held) {
    std::set<Widths> all;
    for (const auto& [lengths, samples] : held) {
      for (const auto& [widths, length] : lengths) {
        all.insert(widths);
      }
    }
    return all;
  }

  // Whether what the record lacks of the reference's tensor can be part of it.
  static bool can_borrow(const Record& record, const Record& other) {
    return record.placement.partial_count == 1 && other.placement.is_whole() &&
           other.type == record.type;
  }

  // Whether as many samples as positions make it unclear which of the two a dimension holds that
  // was taken for samples by its size: a table of positions x positions may be what has this shape.
  [[nodiscard]] bool is_unclear(const Record& record) const {
    const std::int64_t size = record.placement.dims[record.samples->dim].local_size;
    for (const auto& [sample, row] : rows_of(record)) {
      const auto read = rows_.candidate.find({record.id.microbatch, record.samples->count, sample});
      if (read == rows_.candidate.end()) {
        continue;
      }
      for (const auto& [target, lengths] : read->second.padded) {
        for (const auto& [widths, length] : lengths) {
          if (widths.candidate == size) {
            return record.undeclared && !is_data(record.id);
          }
        }
      }
    }
    return false;
  }

  // How the record lies on the reference's tensor. Nothing where the two differ in more than the
  // lengths that data have.
  [[nodiscard]] std::optional<PaddedTensor> laid_on(const Record& record,
                                                    const Record& other,
                                                    const std::set<Widths>& known) const {
    auto laid = other.samples ? PaddedTensor::of(record.placement,
                                                 *record.samples,
                                                 other.placement.logical_shape(),
                                                 *other.samples,
                                                 rows_.padded_at)
                              : std::nullopt;
    const bool is_sparse = std::ranges::any_of(record.placement.dims, &DimPlacement::sparse);
    const bool is_known = laid && std::ranges::includes(known, laid->widths()) &&
                          (!laid->has_rest() || can_borrow(record, other));
    const bool is_unclear = !clear_.contains(in_microbatch(record.id, kNoMicrobatch));
    return is_known && !is_sparse && !is_unclear ? laid : std::nullopt;
  }

  // Returns false where its samples are not those that data speak of, or the reference has them
  // otherwise.
  bool place_part(RankFile& file, const Record& record, std::int64_t target) {
    const auto held = held_of(record, target);
    if (!held || record.placement.dims[record.samples->dim].sparse) {
      return false;
    }
    const auto found = reference_.find(in_microbatch(record.id, target));
    const Record* const other = found == reference_.end() ? nullptr : found->second.record;
    const std::set<Widths> widths = widths_of(*held);
    SampleDim samples = *record.samples;
    samples.count = dealt_.count_of(target);
    std::optional<PaddedTensor> laid;
    if (other != nullptr && !widths.empty()) {
      laid = laid_on(record, *other, widths);
      samples.rows = laid ? laid->rows() : samples.rows;
    }
    if (other != nullptr && (other->samples != samples || laid.has_value() == widths.empty())) {
      return false;
    }
    for (const auto& [lengths, group] : *held) {
      std::optional<PaddedTensor> cut = laid;
      if (laid && can_borrow(record, *other)) {
        cut = laid->shortened(lengths);
      }
      kept_.push_back(part_of(record, target, samples, cut, group));
      if (cut) {
        borrow_rests(file, found->second, cut->rests_of_reference(group));
      }
    }
    return true;
  }

  // Of these samples of the reference.
  [[nodiscard]] Record part_of(const Record& record,
                               std::int64_t target,
                               const SampleDim& samples,
                               const std::optional<PaddedTensor>& laid,
                               const std::set<std::int64_t>& group) const {
    Record part = record;
    part.id.microbatch = target;
    part.samples = samples;
    if (laid) {
      part.placement.dims = laid->common(record.placement);
    }
    DimPlacement& dim = part.placement.dims[samples.dim];
    std::vector<std::int64_t> indices(static_cast<std::size_t>(dim.local_size), kPadding);
    for (const auto& [sample, row] : rows_of(record)) {
      const auto place = dealt_.place_of({record.id.microbatch, record.samples->count, sample});
      const bool is_held = place && place->microbatch == target && group.contains(place->sample);
      for (std::size_t i = 0; is_held && i < row.local.size(); ++i) {
        const std::int64_t within = laid ? laid->common_within(row.within[i]) : row.within[i];
        if (within != kPadding) {
          indices[static_cast<std::size_t>(row.local[i])] =
              logical_index(samples, place->sample, within);
        }
      }
    }
    const std::int64_t per_sample =
        laid ? laid->per_sample() : indices_per_sample(*record.samples, record.placement);
    dim = index_map(indices, per_sample * samples.count);
    return part;
  }

  // Padding that the rank's samples do not have is what the reference has there. Ranks that share
  // samples share it.
  void borrow_rests(RankFile& file, const Shard& other, std::vector<Placement> rests) {
    const std::uint64_t order = kept_.back().order;
    for (Placement& rest : rests) {
      if (borrowed_[other.record->id].insert(to_string(rest)).second) {
        Record& record = kept_.emplace_back(file.borrow(*other.file, *other.record));
        record.placement = std::move(rest);
        record.order = order;
        record.undeclared = false;
      }
    }
  }

  // What the micro-batches add to the gradient of one of the reference.
  void place_addend(const Record& record, std::int64_t target) {
    const std::set<std::int64_t>& sources = dealt_.sources(target);
    const auto number = std::distance(sources.begin(), sources.find(record.id.microbatch));
    Record& addend = kept_.emplace_back(record);
    addend.id.microbatch = target;
    addend.placement.partial_index += static_cast<int>(number) * record.placement.partial_count;
    addend.placement.partial_count *= static_cast<int>(sources.size());
  }

  void set_links(RankFile& file) const {
    std::vector<Edge> edges;
    for (Edge edge : file.edges()) {
      if (is_moved(edge.consumer) || is_moved(edge.producer)) {
        const auto consumer = partner(edge.consumer.microbatch);
        const auto producer = partner(edge.producer.microbatch);
        if (!consumer || !producer) {
          continue;
        }
        edge.consumer.microbatch = *consumer;
        edge.producer.microbatch = *producer;
      }
      edges.push_back(std::move(edge));
    }
    std::vector<RoundedSum> sums;
    for (const RoundedSum& sum : file.sums()) {
      if (!is_moved(sum.id)) {
        sums.push_back(sum);
        continue;
      }
      for (const std::int64_t target : dealt_.targets(sum.id.microbatch)) {
        sums.push_back(sum);
        sums.back().id.microbatch = target;
      }
    }
    file.set_links(std::move(edges), std::move(sums));
  }

  const DealtSamples& dealt_;
  const DataRows& rows_;
  std::set<std::int64_t>
      padded_;  // micro-batches of the candidate in which samples have other lengths
  std::unordered_map<TensorId, Shard, TensorIdHash> reference_;
  std::vector<Record> kept_;
  std::unordered_map<TensorId, const Record*, TensorIdHash> own_;  // the rank's that are moved
  std::map<TensorId, std::set<std::string>> borrowed_;  // parts of the reference's tensors
  std::set<TensorId> clear_;                            // without micro-batch
  std::set<TensorId> left_out_;
};

}  // namespace

std::set<TensorId> place_records(const StepTrace& reference,
                                 const DealtSamples& dealt,
                                 const DataRows& rows,
                                 StepTrace& candidate) {
  RecordPlacer placer(reference, dealt, rows);
  for (const RankFile& file : candidate.ranks) {
    placer.find_clear(file);
  }
  for (RankFile& file : candidate.ranks) {
    placer.place(file);
  }
  std::set<TensorId> left_out = placer.left_out();
  for (RankFile& file : candidate.ranks) {  // what a rank lacks is not compared in parts
    std::vector<Record> records = file.records();
    std::erase_if(records, [&](const Record& record) {
      return left_out.contains(record.id) && dealt.complete().contains(record.id.microbatch);
    });
    file.set_records(std::move(records));
  }
  return left_out;
}

}  // namespace ttrace
