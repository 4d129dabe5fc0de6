#include "hooks/session/consistent_start.h"

#include "hooks/base/simulated_parts.h"
#include "hooks/base/tensor_access.h"
#include "hooks/replace/overlay.h"
#include "trace/base/edit_distance.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>
#include <ttrace/start_from.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace ttrace {
namespace {

// The reference's start files, by parameter path.
class StartParameters {
 public:
  explicit StartParameters(const std::string& reference) : reference_(reference) {
    const Manifest manifest = read_manifest(reference);
    for (int rank = 0; rank < manifest.world_size; ++rank) {
      files_.emplace_back(start_file(reference, rank));
    }
    for (const RankFile& file : files_) {
      for (const Record& record : file.records()) {
        shards_[record.id.path].push_back(shard_of(file, record));
      }
    }
  }

  // From now on, holds the values after the trace's last step, for parameters that it updated.
  void update() {
    trace_.emplace(Trace::open(reference_));
    if (trace_->steps().empty()) {
      return;
    }
    std::map<std::string, std::vector<Shard>> updated;
    for (const RankFile& file : trace_->steps().back().ranks) {
      for (const Record& record : file.records()) {
        if (record.id.kind == Kind::kParamNext) {
          updated[record.id.path].push_back(shard_of(file, record));
        }
      }
    }
    for (auto& [path, shards] : updated) {
      shards_[path] = std::move(shards);
    }
  }

  // The logical tensor. Throws UsageError or FormatError.
  [[nodiscard]] MergeResult get(const std::string& path) const {
    const auto found = shards_.find(path);
    if (found == shards_.end()) {
      TTRACE_THROW(UsageError,
                   "the trace ",
                   reference_,
                   " has no parameter ",
                   path,
                   "; the nearest name is ",
                   nearest(path),
                   "; use canonical paths on both sides, a rename map that has this name (ttrace "
                   "check --rename), or --start own");
    }
    MergeResult result = merge(found->second);
    TTRACE_CHECK(result.has_tensor(),
                 FormatError,
                 "the start parameter ",
                 path,
                 " of ",
                 reference_,
                 " cannot be merged: ",
                 result.why_absent());
    return result;
  }

 private:
  [[nodiscard]] std::string nearest(const std::string& path) const {
    const auto best = std::min_element(
        shards_.begin(), shards_.end(), [&path](const auto& left, const auto& right) {
          return edit_distance(left.first, path) < edit_distance(right.first, path);
        });
    return best == shards_.end() ? "none at all" : best->first;
  }

  std::string reference_;
  std::vector<RankFile> files_;
  std::optional<Trace> trace_;  // after update()
  std::map<std::string, std::vector<Shard>> shards_;
};

// Whether the sizes differ because the program does not say which part of the parameter it has. The
// comparison finds that out later, by the values.
bool is_part_of_unknown_place(const Parameter& parameter,
                              const Placement& placement,
                              const MergeResult& reference,
                              const Annotations& annotations) {
  const auto dims = annotations.find(Kind::kParam, parameter.path);
  return dims && dims->is_guess && placement.logical_shape() != reference.shape &&
         placement.dims.size() == reference.shape.size();
}

// Whether a rank may hold what another one holds as well: the ranks' parts are more than the whole.
bool has_copies(const Placement& placement, const TensorCopy& part, const Layout& layout) {
  return element_count(part.shape) * layout.world_size > element_count(placement.logical_shape());
}

// What a rank began with.
struct Began {
  TensorCopy own;
  bool is_replaced = false;  // its bits changed
  bool has_copies = false;   // another rank may hold the same part
};

Began load_one(const Parameter& parameter,
               const MergeResult& reference,
               const Layout& layout,
               const Annotations& annotations) {
  wait_for_device_of(parameter.tensor);
  TensorCopy current = copy_tensor(parameter.tensor);
  const Placement placement =
      annotations.placement(Kind::kParam, parameter.path, 0, current.shape, layout);
  if (is_part_of_unknown_place(parameter, placement, reference, annotations)) {
    return {std::move(current)};
  }
  TTRACE_CHECK(placement.logical_shape() == reference.shape,
               UsageError,
               "parameter ",
               parameter.path,
               " is ",
               shape_text(placement.logical_shape()),
               " here (local ",
               shape_text(current.shape),
               "), but ",
               shape_text(reference.shape),
               " in the trace to start from; use the same model, or correct its annotation");
  const std::vector<std::byte> bytes = overlay(current, placement, reference);
  const bool may_be_held_twice = layout.world_size > 1 && has_copies(placement, current, layout);
  if (bytes == current.bytes) {
    return {std::move(current), false, may_be_held_twice};
  }
  overwrite_tensor(parameter.tensor, bytes);
  return {std::move(current), true, may_be_held_twice};
}

// The same for each of these ranks. Returns nothing where no bits changed.
std::optional<ReplacedStart> load_ranks(const Parameter& parameter,
                                        const MergeResult& reference,
                                        std::span<const Layout> ranks,
                                        const Annotations& annotations) {
  std::vector<at::Tensor> parts = {parameter.tensor};
  for (at::Tensor& other : other_parts(parameter.tensor)) {
    parts.push_back(std::move(other));
  }
  ReplacedStart replaced{parameter.path, {}};
  bool is_replaced = false;
  bool has_copies = false;
  for (std::size_t i = 0; i < std::min(parts.size(), ranks.size()); ++i) {
    Began began =
        load_one({parameter.path, parameter.module, parts[i]}, reference, ranks[i], annotations);
    is_replaced = is_replaced || began.is_replaced;
    has_copies = has_copies || began.has_copies;
    replaced.own.push_back(std::move(began.own));
  }
  if (!has_copies) {
    replaced.own.clear();
  }
  return is_replaced ? std::optional(std::move(replaced)) : std::nullopt;
}

}  // namespace

void store_start(const std::string& directory,
                 const std::vector<Parameter>& parameters,
                 const Layout& layout,
                 const Annotations& annotations) {
  TraceWriter writer(start_file(directory, layout.rank), layout);
  std::uint64_t order = 0;
  for (const Parameter& parameter : parameters) {
    wait_for_device_of(parameter.tensor);
    TensorCopy copy = copy_tensor(parameter.tensor);
    Record record;
    record.id.kind = Kind::kParam;
    record.id.path = parameter.path;
    record.type = copy.type;
    record.shape = std::move(copy.shape);
    record.placement = annotations.placement(Kind::kParam, parameter.path, 0, record.shape, layout);
    record.order = ++order;
    writer.append(std::move(record), copy.bytes);
  }
  writer.commit();
}

std::vector<ReplacedStart> load_start(const std::string& reference,
                                      const std::vector<Parameter>& parameters,
                                      std::span<const Layout> ranks,
                                      const Annotations& annotations) {
  const StartParameters start(reference);
  std::vector<ReplacedStart> replaced;
  for (const Parameter& parameter : parameters) {
    if (auto one = load_ranks(parameter, start.get(parameter.path), ranks, annotations)) {
      replaced.push_back(*std::move(one));
    }
  }
  return replaced;
}

void start_from(const std::string& directory,
                const std::vector<NamedTensor>& parameters,
                const Layout& layout,
                const Annotations& annotations) {
  StartParameters start(directory);
  start.update();
  for (const NamedTensor& parameter : parameters) {
    require_readable(parameter.path, parameter.tensor, "cannot be replaced");
    static_cast<void>(load_one(
        {parameter.path, "", parameter.tensor}, start.get(parameter.path), layout, annotations));
  }
}

}  // namespace ttrace
