#include "analysis/rename/renaming.h"

#include "analysis/rename/rearrange.h"
#include "trace/base/index_set.h"
#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <set>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

// Along which parts stand together, of a tensor in the candidate's order of dimensions.
std::size_t dim_of_parts(Kind kind, std::size_t rank) {
  return is_of_parameter(kind) || rank == 0 ? 0 : rank - 1;
}

// Converts the values of one conversion. `Value` is a tensor or its noise; `arrange` and the two
// others are rearranged(), fused() and split() of such values.
template <class Value, class Arrange, class Fuse, class Split>
std::vector<Value> convert(std::vector<Value> values,
                           const Conversion& conversion,
                           const RenameMap& map,
                           Names from,
                           Arrange&& arrange,
                           Fuse&& fuse,
                           Split&& split_up) {
  const Kind kind = conversion.sources.front()->id.kind;
  const std::size_t rank = values.front().shape.size();
  const DimsPair* const dims = map.dims(conversion.names, kind, from, rank);
  const std::size_t along =
      dim_of_parts(kind, dims == nullptr ? rank : dims->candidate.dims.size());
  const auto put_together = [&] {
    if (conversion.sources.size() > 1) {
      values = fuse(values, map.fusion(*conversion.names.rule), along);
    } else if (conversion.targets.size() > 1 && !conversion.shared) {
      values = split_up(values.front(), map.fusion(*conversion.names.rule), along);
    }
  };
  // Parts of parameters stand together along their own first dimension.
  const bool in_order_of_source =
      is_of_parameter(kind) ? conversion.sources.size() > 1 : from == Names::kCandidate;
  if (in_order_of_source) {
    put_together();
  }
  if (dims != nullptr) {
    for (Value& value : values) {
      value = arrange(value, dims->of(from), dims->of(other(from)));
    }
  }
  if (!in_order_of_source) {
    put_together();
  }
  return values;
}

// Sums of ranks' addends and what was scaled are doubles; in the trace they are what the ranks
// recorded.
MergeResult in_own_type(MergeResult tensor, const Record& record) {
  if (!tensor.has_tensor() || tensor.type == record.type || tensor.type != ElementType::kF64) {
    return tensor;
  }
  const std::int64_t count = element_count(tensor.shape);
  std::vector<double> values(static_cast<std::size_t>(count));
  to_double(tensor.type, tensor.bytes.data(), count, values.data());
  tensor.storage.resize(values.size() * element_size(record.type));
  from_double(record.type, values.data(), count, tensor.storage.data());
  tensor.type = record.type;
  tensor.bytes = tensor.storage;
  return tensor;
}

Placement placement_of(const MergeResult& tensor) {
  Placement placement = whole(tensor.shape);
  if (tensor.held) {
    DimPlacement& dim = placement.dims[tensor.held->dim];
    dim.sparse = true;
    dim.segments.clear();
    for (const Interval& rows : tensor.held->rows) {
      dim.segments.push_back({rows.begin, rows.begin, rows.end - rows.begin});
    }
  }
  return placement;
}

}  // namespace

Renaming::Renaming(std::string target,
                   const RenameMap& map,
                   const RenameOptions& options,
                   std::size_t total)
    : target_(std::move(target)),
      map_(map),
      options_(options),
      from_(other(options.to)),
      total_(total) {}

void Renaming::write(std::span<Conversion> conversions, TraceWriter& writer) {
  for (Conversion& conversion : conversions) {
    write_one(conversion, writer);
    if (options_.progress) {
      options_.progress(++done_, total_);
    }
  }
}

void Renaming::write_edges(const StepTrace& step, TraceWriter& writer) const {
  std::set<TensorId> told;
  for (const RankFile& file : step.ranks) {
    for (const Edge& edge : file.edges()) {
      const Counterparts producer = map_.find(from_, edge.producer);
      if (producer.reference.size() != 1 || producer.candidate.size() != 1) {
        continue;  // an input cannot be a part of a tensor
      }
      const Counterparts consumers = map_.find(from_, edge.consumer);
      for (const TensorId& consumer : consumers.of(options_.to)) {
        if (told.insert(consumer).second) {
          writer.edge({consumer, producer.of(options_.to).front(), edge.order, edge.time});
        }
      }
    }
  }
}

void Renaming::write_noise(const NoisePass& pass, std::span<const Conversion> conversions) const {
  std::unordered_map<TensorId, const NoiseRow*, TensorIdHash> rows;
  for (const NoiseRow& row : pass.rows) {
    rows.emplace(row.id, &row);
  }
  NoisePass renamed{pass.seed, {}};
  for (const Conversion& conversion : conversions) {
    std::vector<ShapedNoise> sources;
    for (std::size_t i = 0; i < conversion.source_shapes.size(); ++i) {
      const auto found = rows.find(conversion.sources[i]->id);
      if (found != rows.end()) {
        sources.push_back({*found->second, conversion.source_shapes[i]});
      }
    }
    if (!sources.empty() && sources.size() == conversion.sources.size()) {
      add_noise(conversion, std::move(sources), renamed);
    }
  }
  ttrace::write_noise(target_, renamed);
}

void Renaming::write_one(Conversion& conversion, TraceWriter& writer) {
  std::vector<MergeResult> sources;
  for (const Match* source : conversion.sources) {
    sources.push_back(in_own_type(merge(source->reference), *source->reference.front().record));
    if (!sources.back().has_tensor()) {
      note(fmt::format(
          "{} is left out: {}", to_string(source->id), sources.back().findings.front().message));
      return;
    }
  }
  std::vector<std::vector<std::int64_t>> shapes;
  for (const MergeResult& source : sources) {
    shapes.push_back(source.shape);
  }
  const std::vector<MergeResult> targets = converted(conversion, std::move(sources));
  conversion.source_shapes = std::move(shapes);
  const Record& first = *conversion.sources.front()->reference.front().record;
  for (std::size_t i = 0; i < conversion.targets.size(); ++i) {
    const MergeResult& tensor = targets[conversion.shared ? 0 : i];
    Record record;
    record.id = conversion.targets[i];
    record.type = tensor.type;
    record.shape = tensor.shape;
    record.placement = placement_of(tensor);
    record.order = order_of(conversion).second;
    record.time = first.time;
    record.inferred = first.inferred;
    writer.append(std::move(record), tensor.bytes);
    ++tensors_;
  }
}

std::vector<MergeResult> Renaming::converted(const Conversion& conversion,
                                             std::vector<MergeResult> sources) const {
  try {
    return convert(
        std::move(sources),
        conversion,
        map_,
        from_,
        rearranged,
        [](const auto& parts, const Fusion& fusion, std::size_t dim) {
          std::vector<MergeResult> whole;
          whole.push_back(fused(parts, fusion, dim));
          return whole;
        },
        split);
  } catch (const UsageError& error) {
    TTRACE_THROW(
        UsageError,
        fmt::format("{}: {} cannot become {}: {}",
                    conversion.names.rule ? map_.place_of(*conversion.names.rule) : map_.origin(),
                    to_string(conversion.sources.front()->id),
                    to_string(conversion.targets.front()),
                    error.message()));
  }
}

void Renaming::add_noise(const Conversion& conversion,
                         std::vector<ShapedNoise> sources,
                         NoisePass& renamed) const {
  bool known = true;
  std::vector<ShapedNoise> targets = convert(
      std::move(sources),
      conversion,
      map_,
      from_,
      [&](const ShapedNoise& noise, const DimsSpec& from, const DimsSpec& to) {
        // Shapes follow from the tensors; only the order of dimensions matters here.
        return rearranged_noise(noise, from, to, rearranged_shape(noise.shape, from, to));
      },
      [](const auto& parts, const Fusion& fusion, std::size_t dim) {
        return std::vector{fused_noise(parts, fusion, dim)};
      },
      [&](const ShapedNoise& noise, const Fusion& fusion, std::size_t dim) {
        auto parts = split_noise(noise, fusion, dim);
        known = parts.has_value();
        return known ? std::move(*parts) : std::vector{noise};
      });
  if (!known) {
    return;
  }
  for (std::size_t i = 0; i < conversion.targets.size(); ++i) {
    NoiseRow row = targets[conversion.shared ? 0 : i].row;
    row.id = conversion.targets[i];
    renamed.rows.push_back(std::move(row));
  }
}

std::vector<std::string> Renaming::take_notes() {
  return std::exchange(notes_, {});
}

void Renaming::note(std::string text) {
  notes_.push_back(std::move(text));
}

}  // namespace ttrace
