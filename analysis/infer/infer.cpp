#include "analysis/infer/infer.h"

#include "analysis/align/matching.h"
#include "analysis/align/parallel.h"
#include "analysis/findings/wording.h"
#include "analysis/infer/flat_ranges.h"
#include "analysis/infer/samples.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"

#include <ttrace/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

// A declaration is contradicted where its error is so many times that of what the bytes say.
constexpr double kWorse = 3.0;
// Errors below it are those of the last bits.
constexpr double kLastBits = 1e-6;
// Factors closer than that are one.
constexpr double kSameFactor = 0.05;

// One tensor on its way from the files to the result.
struct Subject {
  const Match* match = nullptr;
  std::span<const Shard> reference;  // of a recomputed tensor perhaps those of its first forward
  std::shared_ptr<const Holders> holders = {};
  TensorFits fits = {};
  bool flat = false;
  double declared_error = std::numeric_limits<double>::infinity();
};

bool is_sparse(const Match& match) {
  return std::ranges::any_of(match.candidate, [](const Shard& shard) {
    const auto& dims = shard.record->placement.dims;
    return std::ranges::any_of(dims, &DimPlacement::sparse);
  });
}

std::vector<Placement> declared_placements(const Match& match) {
  std::vector<Placement> placements;
  for (const Shard& shard : match.candidate) {
    placements.push_back(shard.record->placement);
  }
  return placements;
}

// Holders whose addends make a sum, as declared: those of one region, of each addend one.
std::vector<std::vector<std::size_t>> declared_groups(const std::vector<Placement>& placements) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<bool> taken(placements.size(), false);
  for (std::size_t first = 0; first < placements.size(); ++first) {
    if (taken[first]) {
      continue;
    }
    std::vector<std::size_t> group;
    std::set<int> addends;
    for (std::size_t other = first; other < placements.size(); ++other) {
      if (!taken[other] && placements[other].dims == placements[first].dims &&
          addends.insert(placements[other].partial_index).second) {
        group.push_back(other);
        taken[other] = true;
      }
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// The error of what is declared, factors included.
double error_as_declared(std::span<const Shard> shards,
                         const std::vector<Placement>& placements,
                         const MergeResult& reference) {
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  PlaceClaim claim{{}, declared_groups(placements)};
  for (const Placement& placement : placements) {
    if (placement.flat || placement.logical_shape() != reference.shape) {
      return kImpossible;
    }
    std::vector<const DimPlacement*>& dims = claim.dims.emplace_back();
    for (const DimPlacement& dim : placement.dims) {
      dims.push_back(&dim);
    }
    claim.scales.push_back(placement.scale);
  }
  const Samples samples(shards, reference);
  if (!samples.can_add(claim.groups)) {
    return kImpossible;
  }
  return samples.compare(claim, samples.count()).error_as_is;
}

class Inferrer {
 public:
  Inferrer(const Trace& reference, const Trace& candidate, InferOptions options)
      : options_(std::move(options)), matches_(match(reference, candidate)) {
    const auto& versions = candidate.manifest().versions;
    const auto placements = versions.find("placements");
    result_.declares = placements == versions.end() || placements->second != "none";
    for (const RankFile& file : candidate.files()) {
      layouts_.try_emplace(file.layout().rank, file.layout());
    }
  }

  Inference run() {
    choose_subjects();
    each(subjects_.size(), [this](std::size_t i) { look_at(subjects_[i]); });
    vote();
    for (const Subject& subject : subjects_) {
      result_.tensors.push_back(conclude(subject));
    }
    each(subjects_.size(), [this](std::size_t i) {
      if (subjects_[i].flat) {
        find_ranges(subjects_[i], result_.tensors[i]);
      }
    });
    for (InferredTensor& tensor : result_.tensors) {
      judge(tensor);
    }
    collect_contradictions();
    return std::move(result_);
  }

 private:
  void each(std::size_t count, const std::function<void(std::size_t)>& work) {
    std::mutex mutex;
    std::size_t done = 0;
    parallel_for(count, options_.threads, [&](std::size_t index) {
      work(index);
      if (options_.progress) {
        const std::lock_guard lock(mutex);
        options_.progress(++done, count);
      }
    });
  }

  void choose_subjects() {
    for (const Match& match : matches_) {
      const PlacementClass tensors = placement_class(match.id);
      if (tensors.field.empty() || !options_.selection.wants(match.id, match.candidate) ||
          (options_.only && !options_.only(match.id))) {
        continue;
      }
      Subject subject{&match, match.reference};
      if (match.reference.empty() && match.first_forward) {
        subject.reference = matches_[*match.first_forward].reference;
      }
      if (subject.reference.empty() || match.candidate.empty()) {
        ++result_.one_sided;
      } else if (is_sparse(match)) {
        ++result_.by_rows;
      } else {
        subject.holders = holders_of(match.candidate);
        subjects_.push_back(std::move(subject));
      }
    }
    result_.warnings = options_.selection.unused();
    for (const Match& match : matches_) {
      if (match.id.kind == Kind::kParam) {
        parameters_.emplace(std::pair(match.id.step, match.id.path), &match);
      }
    }
    for (Subject& subject : subjects_) {
      subject.flat = is_flat(*subject.match);
    }
  }

  std::shared_ptr<const Holders> holders_of(std::span<const Shard> shards) {
    std::vector<int> ranks;
    std::vector<Layout> layouts;
    for (const Shard& shard : shards) {
      ranks.push_back(shard.rank);
      layouts.push_back(layouts_.at(shard.rank));
    }
    std::shared_ptr<const Holders>& known = holders_[ranks];
    if (known == nullptr) {
      known = std::make_shared<const Holders>(std::move(layouts));
    }
    return known;
  }

  // The parameter's own record of the shard's rank, or null.
  [[nodiscard]] const Shard* parameter_of(const TensorId& id, int rank) const {
    const auto found = parameters_.find({id.step, ttrace::parameter_of(id)});
    if (found == parameters_.end()) {
      return nullptr;
    }
    const auto& shards = found->second->candidate;
    const auto shard = std::ranges::find(shards, rank, &Shard::rank);
    return shard == shards.end() ? nullptr : &*shard;
  }

  // A tensor that an optimizer keeps in one dimension, with another size than its parameter.
  [[nodiscard]] bool is_flat(const Match& match) const {
    const Kind kind = match.id.kind;
    if (!traits_of(kind).of_update && kind != Kind::kStateBefore) {
      return false;
    }
    bool differs = false;
    for (const Shard& shard : match.candidate) {
      const Shard* const parameter = parameter_of(match.id, shard.rank);
      if (parameter == nullptr || shard.record->shape.size() != 1 ||
          shard.record->shape.front() > element_count(parameter->record->shape)) {
        return false;
      }
      differs = differs || shard.record->shape != parameter->record->shape;
    }
    return differs;
  }

  void look_at(Subject& subject) {
    if (subject.flat) {
      return;
    }
    const MergeResult reference = merge(subject.reference);
    if (!reference.has_tensor()) {
      return;
    }
    const std::vector<Shard>& shards = subject.match->candidate;
    subject.fits = fits_of(shards, reference, *subject.holders, table_);
    if (shards.front().record->shape.size() == reference.shape.size()) {
      std::vector<Placement> declared;
      for (const Placement& placement : declared_placements(*subject.match)) {
        declared.push_back(without_flat_range_of_one_dimension(placement));
      }
      subject.declared_error = error_as_declared(shards, declared, reference);
    }
  }

  void vote() {
    Voters voters;
    std::vector<PlacementClass> order;
    for (const Subject& subject : subjects_) {
      if (!subject.flat) {
        std::vector<const TensorFits*>& members = voters[placement_class(subject.match->id)];
        if (members.empty()) {
          order.push_back(placement_class(subject.match->id));
        }
        members.push_back(&subject.fits);
      }
    }
    elections_ = elect(voters);
    for (const PlacementClass& tensors : order) {
      if (const auto found = elections_.find(tensors); found != elections_.end()) {
        result_.classes.push_back({tensors, found->second});
      }
    }
  }

  // The placement on which the tensor and its class agree; `tensor.source` names what decided.
  [[nodiscard]] const PlacementFit* choose(const Subject& subject, InferredTensor& tensor) const {
    const std::vector<PlacementFit>& fits = subject.fits.fits;
    const auto election = elections_.find(tensor.tensors);
    if (fits.empty() || election == elections_.end()) {
      return nullptr;
    }
    const auto winner = std::ranges::find(fits, election->second.dims, &PlacementFit::dims);
    const PlacementFit* const chosen = winner == fits.end() ? &fits.front() : &*winner;
    const bool class_decides = winner != fits.end() && election->second.tied == 1;
    tensor.source = subject.fits.possible == 1 ? Source::kSizes
                    : fits.size() == 1         ? Source::kBytes
                    : class_decides            ? Source::kVote
                                               : Source::kSimplest;
    return chosen;
  }

  [[nodiscard]] InferredTensor conclude(const Subject& subject) const {
    InferredTensor tensor;
    tensor.id = subject.match->id;
    tensor.tensors = placement_class(tensor.id);
    for (const Shard& shard : subject.match->candidate) {
      tensor.ranks.push_back(shard.rank);
    }
    tensor.declared = declared_placements(*subject.match);
    if (subject.flat) {
      return tensor;
    }
    const PlacementFit* const chosen = choose(subject, tensor);
    tensor.has_signal = subject.fits.has_signal();
    tensor.declared_error = subject.declared_error;
    if (chosen == nullptr) {
      tensor.error = std::numeric_limits<double>::infinity();
      tensor.remark = "dims cannot express a placement with these sizes";
      return tensor;
    }
    tensor.dims = chosen->dims;
    tensor.error = chosen->error;
    for (std::size_t holder = 0; holder < subject.holders->count(); ++holder) {
      const std::vector<std::int64_t>& shape = subject.match->candidate[holder].record->shape;
      Placement& placement = tensor.placements.emplace_back(
          shape.empty()
              ? whole(shape)
              : place(parse_dims(chosen->dims), shape, subject.holders->layouts()[holder]));
      placement.scale = chosen->factor;
    }
    return tensor;
  }

  // The inferred placements of the whole parameters of a flat tensor's ranks; empty if unknown.
  [[nodiscard]] std::vector<Placement> parameter_placements(const Subject& subject,
                                                            std::string& dims) const {
    const TensorId& id = subject.match->id;
    const auto election = elections_.find({placement_class(id).pattern, "value", 0});
    if (election == elections_.end()) {
      return {};
    }
    dims = election->second.dims;
    std::vector<Placement> placements;
    for (const Shard& shard : subject.match->candidate) {
      try {
        placements.push_back(place(parse_dims(dims),
                                   parameter_of(id, shard.rank)->record->shape,
                                   layouts_.at(shard.rank)));
      } catch (const UsageError&) {
        return {};
      }
    }
    return placements;
  }

  void find_ranges(const Subject& subject, InferredTensor& tensor) const {
    const MergeResult reference = merge(subject.reference);
    std::string dims;
    std::vector<Placement> parameters = parameter_placements(subject, dims);
    const bool fits = reference.has_tensor() && !parameters.empty() &&
                      std::ranges::all_of(parameters, [&](const auto& parameter) {
                        return parameter.logical_shape() == reference.shape;
                      });
    const FlatFits found =
        fits ? find_flat_ranges(subject.match->candidate, parameters, reference) : FlatFits{};
    if (found.ranges.empty()) {
      tensor.error = std::numeric_limits<double>::infinity();
      tensor.remark = "it agrees with no range of its parameter";
      return;
    }
    std::vector<FlatRange> declared;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      declared.push_back(tensor.declared[i].flat.value_or(FlatRange{-1, 0}));
    }
    const bool same_shape = std::ranges::all_of(tensor.declared, [&](const auto& placement) {
      return placement.logical_shape() == reference.shape;
    });
    tensor.declared_error =
        same_shape ? flat_error(subject.match->candidate, tensor.declared, declared, reference)
                   : std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].flat = found.ranges[i];
      parameters[i].scale = found.factor;
    }
    tensor.source = found.decided ? Source::kBytes : Source::kSimplest;
    tensor.dims = dims;
    tensor.placements = std::move(parameters);
    tensor.error = found.error;
    tensor.has_signal = ttrace::has_signal(found.error);
  }

  void judge(InferredTensor& tensor) const {
    if (tensor.placements.empty()) {
      return;
    }
    tensor.agrees = place_alike(tensor.declared, tensor.placements);
    const double factor = tensor.declared.front().scale / tensor.placements.front().scale;
    const bool same_factor = std::abs(factor - 1.0) <= kSameFactor;
    const bool worse = tensor.declared_error > kWorse * std::max(tensor.error, kLastBits);
    tensor.contradicted =
        result_.declares && tensor.has_signal && worse && !(tensor.agrees && same_factor);
  }

  // Dims where these placements can be said in them, with their factor.
  std::string text_of(const Subject& subject, const std::vector<Placement>& placements) {
    std::string text = dims_text(placements, *subject.holders, table_);
    if (text.empty()) {
      Placement first = placements.front();
      first.scale = 1.0;
      text = to_string(first);
    }
    if (const double scale = placements.front().scale; scale != 1.0) {
      text += " times " + long_number(scale);
    }
    return text;
  }

  void collect_contradictions() {
    std::map<std::tuple<PlacementClass, std::string, std::string>, std::size_t> known;
    for (std::size_t i = 0; i < result_.tensors.size(); ++i) {
      const InferredTensor& tensor = result_.tensors[i];
      if (!tensor.contradicted) {
        continue;
      }
      std::string declared = text_of(subjects_[i], tensor.declared);
      std::string inferred = text_of(subjects_[i], tensor.placements);
      const auto [entry, is_new] =
          known.try_emplace({tensor.tensors, declared, inferred}, result_.contradictions.size());
      if (is_new) {
        result_.contradictions.push_back(
            {tensor.tensors, {}, std::move(declared), std::move(inferred)});
      }
      result_.contradictions[entry->second].members.push_back(i);
    }
  }

  InferOptions options_;
  std::vector<Match> matches_;
  std::map<int, Layout> layouts_;  // by rank
  std::map<std::vector<int>, std::shared_ptr<const Holders>> holders_;
  std::map<std::pair<std::int64_t, std::string>, const Match*> parameters_;  // by step and path
  CutTable table_;
  std::vector<Subject> subjects_;
  Elections elections_;
  Inference result_;
};

}  // namespace

std::string_view name_of(Source source) {
  switch (source) {
    case Source::kSizes:
      return "sizes";
    case Source::kBytes:
      return "bytes";
    case Source::kVote:
      return "vote";
    case Source::kSimplest:
      return "ambiguous";
    case Source::kNone:
      return "unexplained";
  }
  TTRACE_THROW(InternalError, "a source has no name");
}

std::size_t Inference::count(Source source) const {
  return static_cast<std::size_t>(std::ranges::count(tensors, source, &InferredTensor::source));
}

std::size_t Inference::agreeing() const {
  return static_cast<std::size_t>(std::ranges::count(tensors, true, &InferredTensor::agrees));
}

Inference infer(const Trace& reference, const Trace& candidate, InferOptions options) {
  return Inferrer(reference, candidate, std::move(options)).run();
}

}  // namespace ttrace
