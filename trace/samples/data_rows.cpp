#include "trace/samples/data_rows.h"

#include "trace/base/kind.h"
#include "trace/merge/merge.h"
#include "trace/place/boxes.h"
#include "trace/samples/given_data.h"
#include "trace/samples/row_digests.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

TensorId name_of_data(TensorId id) {
  id.step = 0;
  id.microbatch = kNoMicrobatch;
  return id;
}

// The records of data that say which dimension holds samples, in the order of the rank.
std::vector<const Record*> data_of(const RankFile& file, const std::set<std::string>& others) {
  const std::map<std::int64_t, std::string> given = outermost_modules(file, others);
  std::vector<const Record*> records;
  for (const Record& record : file.records()) {
    const auto root = given.find(record.id.microbatch);
    const bool is_given =
        record.id.kind == Kind::kInput && root != given.end() && root->second == record.id.path;
    const bool is_data = record.id.kind == Kind::kData || is_given;
    if (is_data && record.id.microbatch != kNoMicrobatch && record.samples &&
        !record.id.recompute && !record.placement.flat && record.placement.partial_count == 1) {
      records.push_back(&record);
    }
  }
  std::ranges::stable_sort(records, [](const Record* left, const Record* right) {
    const auto place = [](const Record* record) {
      return std::pair(record->id.kind == Kind::kInput, record->order);
    };
    return place(left) < place(right);
  });
  return records;
}

// One data tensor of the reference, by micro-batch.
struct ReferenceTensor {
  SampleDim samples;
  MergeResult whole;
};

// A sample of the reference that may be the candidate's.
struct Equal {
  SamplePlace place;
  Widths widths;     // zero where both have as many positions
  std::string rest;  // the value of what only one has; empty where there is nothing
};

// Samples of the reference, all cut in one way, by digest.
using RowsByDigest = std::unordered_map<std::uint64_t, std::vector<Equal>>;

// The shape of a reference tensor, and where its samples are in it.
using Form = std::vector<std::int64_t>;

// Reference tensors of one form that a record can be laid on.
struct Like {
  PaddedTensor tensor;
  std::vector<std::int64_t> microbatches;
};

// What a record holds of one sample.
struct Hit {
  int rank = 0;
  const Record* record = nullptr;
  ClaimedSample sample;
  std::vector<Equal> equal;
  bool is_known_kind = false;  // the reference has tensors of this length
};

// The value of all elements of a part of a tensor, and an empty text if it has none. Nothing if
// there are several values.
template <class Offset>
std::optional<std::string> only_value(std::span<const DimPlacement> dims,
                                      std::span<const std::byte> bytes,
                                      std::size_t element_size,
                                      const Offset& offset) {
  std::string value;
  bool is_one = true;
  for_each_run(dims, [&](Offsets offsets, std::int64_t length) {
    for (std::int64_t i = 0; i < length && is_one; ++i) {
      const std::size_t start = static_cast<std::size_t>(offset(offsets) + i) * element_size;
      const std::string_view own(reinterpret_cast<const char*>(bytes.data()) + start, element_size);
      value = value.empty() ? std::string(own) : std::move(value);
      is_one = value == own;
    }
  });
  return is_one ? std::optional(std::move(value)) : std::nullopt;
}

class Reader {
 public:
  Reader(const StepTrace& reference, const StepTrace& candidate) {
    const std::set<std::string> of_reference = modules_with_inputs(reference.ranks);
    for (const RankFile& file : candidate.ranks) {
      candidate_.push_back({&file, data_of(file, of_reference)});
    }
    read_reference(reference, modules_with_inputs(candidate.ranks));
    rank_names();
  }

  // Samples are taken to be padded there, where lengths differ.
  [[nodiscard]] DataRows read(PaddedAt padded) {
    rows_.candidate.clear();
    rows_.padded_at = padded;
    rows_.are_ranks_apart = false;
    cuts_.clear();
    std::map<std::pair<int, std::int64_t>, std::int64_t> counts;  // samples by rank, micro-batch
    for (const TensorId& name : rows_.names) {
      std::vector<Hit> hits;
      for (const auto& [file, records] : candidate_) {
        for (const Record* const record : records) {
          const auto [count, is_new] = counts.try_emplace(
              std::pair(file->layout().rank, record->id.microbatch), record->samples->count);
          if (name_of_data(record->id) == name && count->second == record->samples->count) {
            look_up(*file, *record, name, hits);
          }
        }
      }
      keep_one_rest(hits);
      take(name, hits);
    }
    return rows_;
  }
  // Whether data have more positions on one side. Requires: they were read.
  [[nodiscard]] bool has_other_lengths() const { return has_other_lengths_; }

 private:
  struct CandidateRank {
    const RankFile* file = nullptr;
    std::vector<const Record*> records;
  };

  void read_reference(const StepTrace& reference, const std::set<std::string>& of_candidate) {
    std::map<TensorId, std::vector<Shard>> shards;
    std::vector<TensorId> order;
    for (const RankFile& file : reference.ranks) {
      for (const Record* const record : data_of(file, of_candidate)) {
        std::vector<Shard>& own = shards[record->id];
        if (own.empty()) {
          order.push_back(record->id);
        }
        own.push_back({file.layout().rank, record, file.bytes(*record)});
      }
    }
    for (const TensorId& id : order) {
      const std::vector<Shard>& own = shards[id];
      const SampleDim samples = *own.front().record->samples;
      const auto [count, is_new] = rows_.reference.try_emplace(id.microbatch, samples.count);
      MergeResult whole = merge(own);
      if (count->second != samples.count || !whole.has_tensor() || !whole.findings.empty()) {
        continue;
      }
      const TensorId name = name_of_data(id);
      if (std::ranges::find(rows_.names, name) == rows_.names.end()) {
        rows_.names.push_back(name);
      }
      tensors_[name].emplace(id.microbatch, ReferenceTensor{samples, std::move(whole)});
    }
  }

  // Keeps what both programs record; what tells most samples apart comes first.
  void rank_names() {
    std::map<TensorId, std::size_t> distinct;
    std::erase_if(rows_.names, [&](const TensorId& name) {
      return std::ranges::none_of(candidate_, [&](const CandidateRank& rank) {
        return std::ranges::any_of(
            rank.records, [&](const Record* record) { return name_of_data(record->id) == name; });
      });
    });
    for (const TensorId& name : rows_.names) {
      std::set<std::uint64_t> digests;
      for (const auto& [microbatch, tensor] : tensors_[name]) {
        const Placement all = whole(tensor.whole.shape);
        std::vector<std::int64_t> within(
            static_cast<std::size_t>(indices_per_sample(tensor.samples, all)));
        std::iota(within.begin(), within.end(), 0);
        const RowReader reader = reader_of(tensor, all.dims);
        for (std::int64_t sample = 0; sample < tensor.samples.count; ++sample) {
          digests.insert(reader.digest(indices_of(tensor, sample, within)));
        }
      }
      distinct[name] = digests.size();
      most_ = std::max(most_, digests.size());
    }
    std::ranges::stable_sort(
        rows_.names, std::greater<>(), [&](const TensorId& name) { return distinct.at(name); });
    distinct_ = std::move(distinct);
  }

  static RowReader reader_of(const ReferenceTensor& tensor, std::span<const DimPlacement> dims) {
    const std::size_t dim = tensor.samples.dim;
    return {dims,
            dim,
            tensor.whole.shape[dim],
            tensor.whole.bytes,
            element_size(tensor.whole.type),
            RowReader::Holds::kWhole};
  }

  static std::vector<std::int64_t> indices_of(const ReferenceTensor& tensor,
                                              std::int64_t sample,
                                              std::span<const std::int64_t> within) {
    std::vector<std::int64_t> indices;
    for (const std::int64_t index : within) {
      indices.push_back(logical_index(tensor.samples, sample, index));
    }
    return indices;
  }

  // The reference's tensors that are as the record is, but perhaps in the length of one dimension.
  [[nodiscard]] std::map<Form, Like> likes_of(const TensorId& name, const Record& record) {
    std::map<Form, Like> likes;
    for (const auto& [microbatch, tensor] : tensors_.at(name)) {
      auto like = PaddedTensor::of(
          record.placement, *record.samples, tensor.whole.shape, tensor.samples, rows_.padded_at);
      if (like && like->axes() < 2 && tensor.whole.type == record.type) {
        has_other_lengths_ = has_other_lengths_ || like->axes() > 0;
        Form form(tensor.whole.shape.begin(), tensor.whole.shape.end());
        form.insert(form.end(), {tensor.samples.count, tensor.samples.rows});
        likes.try_emplace(std::move(form), Like{*std::move(like), {}})
            .first->second.microbatches.push_back(microbatch);
      }
    }
    return likes;
  }

  // Samples of such tensors, cut as the record's sample is: at these indices of the reference.
  const RowsByDigest& cut(const TensorId& name,
                          const Record& record,
                          const std::pair<const Form, Like>& entry,
                          const std::vector<std::int64_t>& within) {
    const auto& [form, like] = entry;
    Placement others = record.placement;
    others.dims[record.samples->dim] = {};
    std::string key = to_string(name) + ' ' + to_string(others);
    for (const std::int64_t index : within) {
      key += ' ' + std::to_string(index);
    }
    key += " of";
    for (const std::int64_t size : form) {
      key += ' ' + std::to_string(size);
    }
    const auto [found, is_new] = cuts_.try_emplace(std::move(key));
    if (!is_new) {
      return found->second;
    }
    const std::set<Widths> widths = like.tensor.widths();
    const std::vector<DimPlacement> dims = like.tensor.common(record.placement);
    for (const std::int64_t microbatch : like.microbatches) {
      const ReferenceTensor& tensor = tensors_.at(name).at(microbatch);
      const RowReader reader = reader_of(tensor, dims);
      for (std::int64_t sample = 0; sample < tensor.samples.count; ++sample) {
        if (auto rest = rest_of(like, tensor, sample)) {
          found->second[reader.digest(indices_of(tensor, sample, within))].push_back(
              {{microbatch, sample},
               widths.empty() ? Widths() : *widths.begin(),
               *std::move(rest)});
        }
      }
    }
    return found->second;
  }

  // What the reference's sample has beyond the candidate's, if it is one value.
  static std::optional<std::string> rest_of(const Like& like,
                                            const ReferenceTensor& tensor,
                                            std::int64_t sample) {
    std::optional<std::string> rest = "";
    for (const Placement& part : like.tensor.rests_of_reference({sample})) {
      rest = only_value(
          part.dims, tensor.whole.bytes, element_size(tensor.whole.type), [](Offsets offsets) {
            return offsets.logical;
          });
    }
    return rest;
  }

  static std::vector<SamplePlace> common(const std::vector<SamplePlace>& left,
                                         const std::vector<SamplePlace>& right) {
    std::vector<SamplePlace> both;
    std::ranges::set_intersection(left, right, std::back_inserter(both));
    return both;
  }

  // Nobody said where the ranks' data lie, so that they all seem to hold the same samples.
  void note_rank(const ReadSample& read, const std::vector<SamplePlace>& found) {
    rows_.are_ranks_apart =
        rows_.are_ranks_apart || (read.equal && common(*read.equal, found).empty());
  }

  // How many positions of a padded sample are no padding.
  [[nodiscard]] std::int64_t length_of(const TensorId& name,
                                       const Record& record,
                                       const Equal& equal) const {
    const ReferenceTensor& tensor = tensors_.at(name).at(equal.place.microbatch);
    const auto like = PaddedTensor::of(
        record.placement, *record.samples, tensor.whole.shape, tensor.samples, rows_.padded_at);
    const auto holds_all = [&](std::int64_t length) {
      const Like shorter{like->shortened({{equal.widths, length}}), {}};
      const auto rest = rest_of(shorter, tensor, equal.place.sample);
      return rest && (rest->empty() || *rest == equal.rest);
    };
    std::int64_t below = -1;
    std::int64_t length = std::min(equal.widths.candidate, equal.widths.reference);
    while (length - below > 1) {
      const std::int64_t middle = below + (length - below) / 2;
      (holds_all(middle) ? length : below) = middle;
    }
    return length;
  }

  void look_up(const RankFile& file,
               const Record& record,
               const TensorId& name,
               std::vector<Hit>& hits) {
    const SampleDim& samples = *record.samples;
    const auto rows = rows_of(record);
    const std::size_t first = hits.size();
    for (const auto& [sample, row] : rows) {
      Hit& hit = hits.emplace_back();
      hit.rank = file.layout().rank;
      hit.record = &record;
      hit.sample = {record.id.microbatch, samples.count, sample};
    }
    for (const auto& entry : likes_of(name, record)) {
      const RowReader reader(entry.second.tensor.common(record.placement),
                             samples.dim,
                             record.placement.dims[samples.dim].local_size,
                             file.bytes(record),
                             element_size(record.type),
                             RowReader::Holds::kPart);
      std::size_t next = first;
      for (const auto& [sample, row] : rows) {
        add_equals(reader, file.bytes(record), {name, entry, row}, hits[next++]);
      }
    }
  }

  struct Row {
    const TensorId& name;
    const std::pair<const Form, Like>& like;
    const RowIndices& indices;
  };

  // Those of the samples of such tensors that are the record's.
  void add_equals(const RowReader& reader,
                  std::span<const std::byte> bytes,
                  const Row& row,
                  Hit& hit) {
    const Record& record = *hit.record;
    const PaddedTensor& tensor = row.like.second.tensor;
    std::vector<std::int64_t> local;
    std::vector<std::int64_t> within;
    for (std::size_t i = 0; i < row.indices.local.size(); ++i) {
      const std::int64_t index = tensor.common_within(row.indices.within[i]);
      if (index != kPadding) {
        local.push_back(row.indices.local[i]);
        within.push_back(index);
      }
    }
    const RowsByDigest& rows = cut(row.name, record, row.like, within);
    const bool is_padded = tensor.axes() > 0;
    hit.is_known_kind = hit.is_known_kind || (!is_padded && !rows.empty());
    const std::optional<std::string> rest =
        is_padded ? only_value(tensor.own_rest(record.placement, row.indices),
                               bytes,
                               element_size(record.type),
                               [](Offsets offsets) { return offsets.local; })
                  : std::optional<std::string>("");
    const auto found = rest ? rows.find(reader.digest(local)) : rows.end();
    if (found != rows.end()) {
      for (const Equal& equal : found->second) {
        hit.equal.push_back({equal.place, equal.widths, equal.rest.empty() ? *rest : equal.rest});
      }
    }
  }

  // Padding is one value throughout a tensor: that of most samples.
  static void keep_one_rest(std::vector<Hit>& hits) {
    std::map<std::string, std::size_t> counts;
    for (const Hit& hit : hits) {
      std::set<std::string> rests;
      for (const Equal& equal : hit.equal) {
        rests.insert(equal.rest);
      }
      for (const std::string& rest : rests) {
        ++counts[rest];
      }
    }
    counts.erase("");
    const auto most =
        std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    for (Hit& hit : hits) {
      std::erase_if(hit.equal, [&](const Equal& equal) {
        return !equal.rest.empty() && equal.rest != most->first;
      });
    }
  }

  void take(const TensorId& name, std::vector<Hit>& hits) {
    std::set<const Record*> known;  // those of which the reference has a sample
    for (const Hit& hit : hits) {
      if (hit.is_known_kind || !hit.equal.empty()) {
        known.insert(hit.record);
      }
    }
    for (Hit& hit : hits) {
      std::ranges::sort(hit.equal, {}, &Equal::place);
      take(name, hit, known.contains(hit.record));
    }
    // Nobody said where the ranks' data lie: they hold other positions of the same samples.
    rows_.are_ranks_apart = rows_.are_ranks_apart || std::ranges::any_of(hits, [&](const Hit& hit) {
                              return name == rows_.names.front() && hit.record->undeclared &&
                                     !known.contains(hit.record) &&
                                     rows_.candidate.at(hit.sample).equal;
                            });
  }

  void take(const TensorId& name, const Hit& hit, bool is_known) {
    const bool tells_apart = distinct_.at(name) == most_;
    ReadSample& read = rows_.candidate[hit.sample];
    read.ranks.insert(hit.rank);
    if (hit.equal.empty()) {
      read.is_foreign = read.is_foreign || (tells_apart && is_known && must_be_equal(name.kind));
      return;
    }
    std::vector<SamplePlace> found;
    for (const Equal& equal : hit.equal) {
      found.push_back(equal.place);
      if (equal.widths != Widths()) {
        std::int64_t& length = read.padded[equal.place.microbatch][equal.widths];
        length = std::max(length, length_of(name, *hit.record, equal));
      }
    }
    if (hit.record->undeclared && name == rows_.names.front()) {
      note_rank(read, found);
    }
    if (!read.equal && tells_apart) {
      read.equal = std::move(found);
    } else if (read.equal) {
      const std::vector<SamplePlace> both = common(*read.equal, found);
      // A tensor that contradicts the others is wrong itself, which its comparison shows.
      read.equal = both.empty() ? std::move(read.equal) : std::optional(both);
    }
  }

  std::vector<CandidateRank> candidate_;
  std::map<TensorId, std::map<std::int64_t, ReferenceTensor>> tensors_;  // by name, micro-batch
  std::map<TensorId, std::size_t> distinct_;  // samples of the reference that each tells apart
  std::size_t most_ = 0;
  std::unordered_map<std::string, RowsByDigest> cuts_;
  DataRows rows_;
  bool has_other_lengths_ = false;
};

}  // namespace

DataRows read_data_rows(const StepTrace& reference, const StepTrace& candidate) {
  const auto known = [](const DataRows& rows) {
    return std::ranges::count_if(
        rows.candidate, [](const auto& sample) { return sample.second.equal.has_value(); });
  };
  Reader reader(reference, candidate);
  DataRows at_end = reader.read(PaddedAt::kEnd);
  if (!reader.has_other_lengths()) {
    return at_end;
  }
  DataRows at_start = reader.read(PaddedAt::kStart);
  return known(at_start) > known(at_end) ? at_start : at_end;
}

}  // namespace ttrace
