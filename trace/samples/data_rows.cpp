#include "trace/samples/data_rows.h"

#include "trace/base/kind.h"
#include "trace/merge/merge.h"
#include "trace/samples/given_data.h"
#include "trace/samples/row_digests.h"

#include <algorithm>
#include <functional>
#include <iterator>
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

// Digests of all samples of the reference, cut in one way.
using RowsByDigest = std::unordered_map<std::uint64_t, std::vector<SamplePlace>>;

class Reader {
 public:
  Reader(const StepTrace& reference, const StepTrace& candidate) {
    const std::set<std::string> of_reference = modules_with_inputs(reference.ranks);
    for (const RankFile& file : candidate.ranks) {
      candidate_.push_back({&file, data_of(file, of_reference)});
    }
    read_reference(reference, modules_with_inputs(candidate.ranks));
  }

  DataRows read() {
    rank_names();
    std::map<std::pair<int, std::int64_t>, std::int64_t> counts;  // samples by rank, micro-batch
    for (const TensorId& name : rows_.names) {
      for (const auto& [file, records] : candidate_) {
        for (const Record* const record : records) {
          const auto [count, is_new] = counts.try_emplace(
              std::pair(file->layout().rank, record->id.microbatch), record->samples->count);
          if (name_of_data(record->id) == name && count->second == record->samples->count) {
            look_up(*file, *record, name);
          }
        }
      }
    }
    return std::move(rows_);
  }

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
      RowsByDigest rows;
      for (const auto& [microbatch, tensor] : tensors_[name]) {
        const Placement all = whole(tensor.whole.shape);
        std::vector<std::int64_t> within(
            static_cast<std::size_t>(indices_per_sample(tensor.samples, all)));
        for (std::size_t i = 0; i < within.size(); ++i) {
          within[i] = static_cast<std::int64_t>(i);
        }
        add_rows(all.dims, microbatch, tensor, within, rows);
      }
      distinct[name] = rows.size();
      most_ = std::max(most_, rows.size());
    }
    std::ranges::stable_sort(
        rows_.names, std::greater<>(), [&](const TensorId& name) { return distinct.at(name); });
    distinct_ = std::move(distinct);
  }

  static void add_rows(std::span<const DimPlacement> dims,
                       std::int64_t microbatch,
                       const ReferenceTensor& tensor,
                       std::span<const std::int64_t> within,
                       RowsByDigest& rows) {
    const SampleDim& samples = tensor.samples;
    const RowReader reader(dims,
                           samples.dim,
                           tensor.whole.shape[samples.dim],
                           tensor.whole.bytes,
                           element_size(tensor.whole.type),
                           RowReader::Holds::kWhole);
    std::vector<std::int64_t> indices(within.size());
    for (std::int64_t sample = 0; sample < samples.count; ++sample) {
      for (std::size_t i = 0; i < within.size(); ++i) {
        indices[i] = logical_index(samples, sample, within[i]);
      }
      rows[reader.digest(indices)].push_back({microbatch, sample});
    }
  }

  // Whether the reference's tensor can be cut as the record is.
  static bool can_cut(const ReferenceTensor& tensor, const Record& record) {
    const SampleDim& own = *record.samples;
    const MergeResult& whole = tensor.whole;
    if (tensor.samples.dim != own.dim || tensor.samples.rows != own.rows ||
        whole.type != record.type || whole.shape.size() != record.placement.dims.size()) {
      return false;
    }
    for (std::size_t dim = 0; dim < whole.shape.size(); ++dim) {
      const std::int64_t size = record.placement.dims[dim].logical_size;
      const bool fits = dim == own.dim ? size / own.count * tensor.samples.count == whole.shape[dim]
                                       : size == whole.shape[dim];
      if (!fits) {
        return false;
      }
    }
    return true;
  }

  const RowsByDigest& cut(const TensorId& name,
                          const Record& record,
                          const std::vector<std::int64_t>& within) {
    Placement others = record.placement;
    others.dims[record.samples->dim] = {};
    std::string key = to_string(name) + ' ' + to_string(others);
    for (const std::int64_t index : within) {
      key += ' ' + std::to_string(index);
    }
    const auto [found, is_new] = cuts_.try_emplace(std::move(key));
    if (is_new) {
      for (const auto& [microbatch, tensor] : tensors_[name]) {
        if (can_cut(tensor, record)) {
          add_rows(record.placement.dims, microbatch, tensor, within, found->second);
        }
      }
      for (auto& [digest, places] : found->second) {
        std::ranges::sort(places);
      }
    }
    return found->second;
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

  void look_up(const RankFile& file, const Record& record, const TensorId& name) {
    const SampleDim& samples = *record.samples;
    const RowReader reader(record.placement.dims,
                           samples.dim,
                           record.placement.dims[samples.dim].local_size,
                           file.bytes(record),
                           element_size(record.type),
                           RowReader::Holds::kPart);
    const bool tells_apart = distinct_.at(name) == most_;
    for (const auto& [sample, row] : rows_of(record)) {
      ReadSample& read = rows_.candidate[{record.id.microbatch, samples.count, sample}];
      read.ranks.insert(file.layout().rank);
      const RowsByDigest& rows = cut(name, record, row.within);
      const auto found = rows.find(reader.digest(row.local));
      if (found == rows.end()) {
        read.is_foreign =
            read.is_foreign || (tells_apart && !rows.empty() && must_be_equal(name.kind));
        continue;
      }
      if (record.undeclared && name == rows_.names.front()) {
        note_rank(read, found->second);
      }
      if (!read.equal && tells_apart) {
        read.equal = found->second;
      } else if (read.equal) {
        const std::vector<SamplePlace> both = common(*read.equal, found->second);
        // A tensor that contradicts the others is wrong itself, which its comparison shows.
        read.equal = both.empty() ? std::move(read.equal) : std::optional(both);
      }
    }
  }

  std::vector<CandidateRank> candidate_;
  std::map<TensorId, std::map<std::int64_t, ReferenceTensor>> tensors_;  // by name, micro-batch
  std::map<TensorId, std::size_t> distinct_;  // samples of the reference that each tells apart
  std::size_t most_ = 0;
  std::unordered_map<std::string, RowsByDigest> cuts_;
  DataRows rows_;
};

}  // namespace

DataRows read_data_rows(const StepTrace& reference, const StepTrace& candidate) {
  return Reader(reference, candidate).read();
}

}  // namespace ttrace
