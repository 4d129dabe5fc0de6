#include "analysis/rename/rename.h"

#include "analysis/align/matching.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rearrange.h"
#include "analysis/rename/rename_noise.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/manifest.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

bool is_collective(Kind kind) {
  return kind == Kind::kCollectiveInput || kind == Kind::kCollectiveOutput;
}

// The input of a module that has parts is the same tensor as those of its parts.
bool is_shared_by_parts(Kind kind) {
  return kind == Kind::kInput || kind == Kind::kGradInput;
}

// Tensors that a module with parts has once for all of them, in a way that no rearrangement of
// theirs gives.
bool has_no_parts(Kind kind) {
  switch (kind) {
    case Kind::kRouting:
    case Kind::kScale:
    case Kind::kAmaxHistory:
    case Kind::kOperand:
    case Kind::kScalar:
      return true;
    default:
      return is_collective(kind);
  }
}

// Some tensors that become others, all at once.
struct Conversion {
  Counterparts names;
  std::vector<const Match*> sources;  // in the order of the parts
  std::vector<TensorId> targets;
  bool shared = false;  // one tensor under several names, instead of its parts
  // Of what was written, for noise.
  std::vector<std::vector<std::int64_t>> source_shapes;
  std::vector<std::vector<std::int64_t>> target_shapes;
};

// What becomes of tensors, in the order in which they are complete.
class Plan {
 public:
  Plan(const RenameMap& map, Names from) : map_(map), from_(from), used_(map.rule_count(), false) {}

  void add(const Match& tensor) {
    Counterparts names = map_.find(from_, tensor.id);
    if (names.rule) {
      used_[*names.rule] = true;
    }
    if (names.of(other(from_)).empty()) {
      ++only_here_;
      return;
    }
    const bool has_parts = names.reference.size() + names.candidate.size() > 2;
    if (has_parts && has_no_parts(tensor.id.kind)) {
      names = {{tensor.id}, {tensor.id}, std::nullopt};
    }
    const std::vector<TensorId> sources = names.of(from_);
    const std::vector<TensorId> targets = names.of(other(from_));
    if (sources.size() > 1 && !is_shared_by_parts(tensor.id.kind)) {
      add_part(tensor, std::move(names));
    } else if (sources.size() == 1 || !targets_.contains(targets.front())) {
      const bool shared = is_shared_by_parts(tensor.id.kind);
      finish({std::move(names), {&tensor}, targets, shared, {}, {}});
    }
  }

  // Parts whose others never came keep their names.
  std::vector<Conversion> result(std::vector<std::string>& notes) {
    std::map<std::string, std::pair<std::size_t, std::string>> lonely;  // by entry
    for (auto& [target, conversion] : open_) {
      for (const Match* part : conversion.sources) {
        if (part != nullptr) {
          auto& [count, first] = lonely[map_.place_of(*conversion.names.rule)];
          first = count++ == 0 ? to_string(part->id) : first;
          finish({{{part->id}, {part->id}, std::nullopt}, {part}, {part->id}, false, {}, {}});
        }
      }
    }
    open_.clear();
    for (const auto& [place, parts] : lonely) {
      notes.push_back(
          place + ": " + counted(static_cast<std::int64_t>(parts.first), "part", "parts") +
          " of a tensor whose other parts are not in the trace, the first is " + parts.second);
    }
    std::ranges::stable_sort(done_, [](const Conversion& left, const Conversion& right) {
      return order_of(left) < order_of(right);
    });
    return std::move(done_);
  }

  [[nodiscard]] std::size_t only_here() const { return only_here_; }
  [[nodiscard]] const std::vector<bool>& used() const { return used_; }

  static std::pair<std::int64_t, std::uint64_t> order_of(const Conversion& conversion) {
    std::pair<std::int64_t, std::uint64_t> last;
    for (const Match* source : conversion.sources) {
      last = std::max(last, {source->id.step, source->order});
    }
    return last;
  }

 private:
  void add_part(const Match& tensor, Counterparts names) {
    const TensorId target = names.of(other(from_)).front();
    const std::vector<TensorId>& parts = names.of(from_);
    const auto place =
        static_cast<std::size_t>(std::ranges::find(parts, tensor.id) - parts.begin());
    Conversion& conversion = open_[target];
    if (conversion.sources.empty()) {
      conversion.names = std::move(names);
      conversion.sources.resize(conversion.names.of(from_).size(), nullptr);
      conversion.targets = {target};
    }
    conversion.sources.at(place) = &tensor;
    if (std::ranges::count(conversion.sources, nullptr) == 0) {
      finish(std::move(conversion));
      open_.erase(target);
    }
  }

  void finish(Conversion conversion) {
    for (const TensorId& target : conversion.targets) {
      const auto [taken, is_new] = targets_.emplace(target, conversion.sources.front()->id);
      TTRACE_CHECK(is_new,
                   UsageError,
                   conversion.names.rule ? map_.place_of(*conversion.names.rule) : map_.origin(),
                   ": ",
                   to_string(conversion.sources.front()->id),
                   " and ",
                   to_string(taken->second),
                   " both become ",
                   to_string(target),
                   "; correct the entries, or say with ~ that one of them has no counterpart");
    }
    done_.push_back(std::move(conversion));
  }

  const RenameMap& map_;
  Names from_;
  std::vector<bool> used_;
  std::size_t only_here_ = 0;
  std::map<TensorId, Conversion> open_;  // by target
  std::vector<Conversion> done_;
  std::unordered_map<TensorId, TensorId, TensorIdHash> targets_;  // whence
};

// Along which parts stand together, of a tensor in the candidate's order of dimensions.
std::size_t dim_of_parts(Kind kind, std::size_t rank) {
  return is_of_parameter(kind) || rank == 0 ? 0 : rank - 1;
}

// What becomes of the values of one conversion. `Value` is a tensor or its noise; `arrange` and the
// two others are rearranged(), fused() and split() of such values.
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
  if (from == Names::kCandidate) {
    put_together();
  }
  if (dims != nullptr) {
    for (Value& value : values) {
      value = arrange(value, dims->of(from), dims->of(other(from)));
    }
  }
  if (from == Names::kReference) {
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

class Renaming {
 public:
  Renaming(std::string target, const RenameMap& map, const RenameOptions& options)
      : target_(std::move(target)), map_(map), options_(options), from_(other(options.to)) {}

  // All tensors of one file to be, in execution order.
  void write(std::span<Conversion> conversions, TraceWriter& writer) {
    for (Conversion& conversion : conversions) {
      write_one(conversion, writer);
      if (options_.progress) {
        options_.progress(++done_, total_);
      }
    }
  }

  void write_edges(const StepTrace& step, TraceWriter& writer) const {
    std::set<TensorId> told;
    for (const RankFile& file : step.ranks) {
      for (const Edge& edge : file.edges()) {
        const Counterparts producer = map_.find(from_, edge.producer);
        if (producer.reference.size() != 1 || producer.candidate.size() != 1) {
          continue;  // a part of a tensor is no record that an input could be
        }
        const Counterparts consumers = map_.find(from_, edge.consumer);
        for (const TensorId& consumer : consumers.of(options_.to)) {
          if (told.insert(consumer).second) {
            writer.edge({consumer, producer.of(options_.to).front(), edge.order});
          }
        }
      }
    }
  }

  void write_noise(const NoisePass& pass, std::span<const Conversion> conversions) const {
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

  void expect(std::size_t total) { total_ += total; }
  [[nodiscard]] std::size_t tensors() const { return tensors_; }
  [[nodiscard]] std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  void note(std::string text) { notes_.push_back(std::move(text)); }

 private:
  void write_one(Conversion& conversion, TraceWriter& writer) {
    std::vector<MergeResult> sources;
    for (const Match* source : conversion.sources) {
      sources.push_back(in_own_type(merge(source->reference), *source->reference.front().record));
      if (!sources.back().has_tensor()) {
        note(to_string(source->id) + " is left out: " + sources.back().findings.front().message);
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
      record.order = Plan::order_of(conversion).second;
      record.inferred = first.inferred;
      writer.append(std::move(record), tensor.bytes);
      conversion.target_shapes.push_back(tensor.shape);
      ++tensors_;
    }
  }

  [[nodiscard]] std::vector<MergeResult> converted(const Conversion& conversion,
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
      TTRACE_THROW(UsageError,
                   conversion.names.rule ? map_.place_of(*conversion.names.rule) : map_.origin(),
                   ": ",
                   to_string(conversion.sources.front()->id),
                   " cannot become ",
                   to_string(conversion.targets.front()),
                   ": ",
                   error.message());
    }
  }

  void add_noise(const Conversion& conversion,
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

  std::string target_;
  const RenameMap& map_;
  const RenameOptions& options_;
  Names from_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  std::size_t tensors_ = 0;
  std::vector<std::string> notes_;
};

// Parameters before the optimizer, of all ranks.
struct Start {
  explicit Start(const Trace& trace) {
    for (int rank = 0; rank < trace.manifest().world_size; ++rank) {
      if (fs::exists(start_file(trace.directory(), rank))) {
        files.emplace_back(start_file(trace.directory(), rank));
      }
    }
    std::map<TensorId, std::size_t> places;
    for (const RankFile& file : files) {
      for (const Record& record : file.records()) {
        const auto [place, is_new] = places.emplace(record.id, tensors.size());
        if (is_new) {
          tensors.emplace_back();
          tensors.back().id = record.id;
          tensors.back().order = record.order;
        }
        tensors[place->second].reference.push_back(
            {file.layout().rank, &record, file.bytes(record)});
      }
    }
  }

  std::vector<RankFile> files;
  std::vector<Match> tensors;
};

// What a renamed trace says of itself.
Manifest renamed_manifest(const Trace& trace, const RenameOptions& options) {
  Manifest manifest = trace.manifest();
  manifest.names = name_of(options.to);
  manifest.untraced.clear();  // expressions on the old names
  if (manifest.world_size > 1) {
    manifest.world_size = 1;
    manifest.layout.clear();
  }
  if (!options.forced_routing.empty()) {
    manifest.forced_routing = options.forced_routing;
  }
  return manifest;
}

void require_free(const std::string& target) {
  std::error_code error;
  TTRACE_CHECK(!fs::exists(target, error) ||
                   (fs::is_directory(target, error) && fs::is_empty(target, error)),
               UsageError,
               target,
               " already holds something; choose another folder, or remove it");
}

// Copies the notes of all ranks.
void copy_notes(const StepTrace& step, TraceWriter& writer) {
  for (const RankFile& file : step.ranks) {
    for (const std::string& note : file.notes()) {
      writer.note(step.ranks.size() == 1
                      ? note
                      : "rank " + std::to_string(file.layout().rank) + ": " + note);
    }
  }
}

}  // namespace

RenameResult rename_trace(const std::string& source,
                          const std::string& target,
                          const RenameMap& map,
                          const RenameOptions& options) {
  const Trace trace = Trace::open(source);
  TTRACE_CHECK(trace.manifest().names.empty(),
               UsageError,
               source,
               " is in the ",
               trace.manifest().names,
               "'s names already; give the trace that its program wrote");
  require_free(target);
  const Names from = other(options.to);
  std::vector<Match> tensors = tensors_of(trace);
  if (trace.manifest().world_size > 1) {
    std::erase_if(tensors, [](const Match& match) { return is_collective(match.id.kind); });
  }
  const Start start(trace);
  Plan plan(map, from);
  Plan start_plan(map, from);
  std::ranges::for_each(tensors, [&](const Match& match) { plan.add(match); });
  std::ranges::for_each(start.tensors, [&](const Match& match) { start_plan.add(match); });
  RenameResult result;
  std::vector<Conversion> conversions = plan.result(result.warnings);
  std::vector<std::string> ignored;  // the same as of the steps
  std::vector<Conversion> start_conversions = start_plan.result(ignored);

  Renaming renaming(target, map, options);
  renaming.expect(conversions.size() + start_conversions.size());
  fs::create_directories(target);
  write_manifest(target, renamed_manifest(trace, options));
  map.save(target + "/" + kRenameFile);
  if (!start.files.empty()) {
    TraceWriter writer(start_file(target, 0), Layout());
    renaming.write(start_conversions, writer);
    writer.commit();
  }
  if (plan.only_here() > 0) {
    renaming.note("the rename map leaves out " +
                  counted(static_cast<std::int64_t>(plan.only_here()), "tensor", "tensors") +
                  " that the " + std::string(name_of(options.to)) + " has no counterpart of");
  }
  auto next = conversions.begin();
  for (const StepTrace& step : trace.steps()) {
    const auto end = std::find_if(next, conversions.end(), [&](const Conversion& conversion) {
      return conversion.targets.front().step != step.step;
    });
    TraceWriter writer(step_file(target, step.step, 0),
                       step.ranks.size() == 1 ? step.ranks.front().layout() : Layout());
    renaming.write({next, end}, writer);
    renaming.write_edges(step, writer);
    copy_notes(step, writer);
    for (std::string& note : renaming.take_notes()) {
      writer.note(std::move(note));
    }
    writer.commit();
    next = end;
  }
  for_each_noise_pass(source,
                      [&](const NoisePass& pass) { renaming.write_noise(pass, conversions); });
  result.tensors = renaming.tensors();
  result.only_here = plan.only_here();
  for (std::size_t rule = 0; rule < map.rule_count(); ++rule) {
    if (map.has_names(rule, from) && !plan.used()[rule] && !start_plan.used()[rule]) {
      result.warnings.push_back(map.place_of(rule) + ": no tensor of the " +
                                std::string(name_of(from)) + " matches this entry");
    }
  }
  return result;
}

RenameMap map_of(const std::string& renamed_trace) {
  return RenameMap::load(renamed_trace + "/" + kRenameFile);
}

}  // namespace ttrace
