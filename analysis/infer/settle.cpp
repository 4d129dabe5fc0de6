#include "analysis/infer/settle.h"

#include "analysis/align/matching.h"
#include "analysis/infer/infer.h"
#include "trace/base/kind.h"
#include "trace/merge/absent_addends.h"
#include "trace/merge/merge.h"
#include "trace/merge/summed_gradients.h"
#include "trace/samples/align_samples.h"

#include <ttrace/dims.h>
#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

bool has_undeclared(const Trace& trace) {
  return std::ranges::any_of(trace.files(), [](const RankFile& file) {
    return std::ranges::any_of(file.records(), &Record::undeclared);
  });
}

bool is_undeclared(const Match& match) {
  return !match.candidate.empty() && std::ranges::all_of(match.candidate, [](const Shard& shard) {
    return shard.record->undeclared;
  });
}

// Whether the ranks' tensors cannot lie as guessed.
bool contradicts_guess(const Match& match) {
  const std::vector<std::int64_t> wanted =
      match.reference.front().record->placement.logical_shape();
  const auto has_other_shape = [&](const Shard& shard) {
    return shard.record->placement.logical_shape() != wanted;
  };
  if (std::ranges::any_of(match.candidate, has_other_shape)) {
    return true;
  }
  const MergeResult merged = merge(match.candidate);
  return !merged.has_tensor() || !merged.findings.empty();
}

// Whether the tensor is no sum, or one over some of these axes alone: "dp" or "dp,tp".
bool sums_only_over(const DimsSpec& dims, const std::string& axes) {
  const std::string known = "," + axes + ",";
  const auto is_known = [&](const AxisUse& use) {
    return use.sharding != Sharding::kPartial ||
           known.find("," + use.axis + ",") != std::string::npos;
  };
  return std::ranges::all_of(dims.dims | std::views::join, [&](const DimFactor& factor) {
    return std::ranges::all_of(factor.axes, is_known);
  });
}

// What a rank computed next in the forward, or backward, of the same micro-batch.
class NextOnRank {
 public:
  explicit NextOnRank(const Trace& trace) {
    for (const RankFile& file : trace.files()) {
      std::map<Stream, std::vector<const Record*>> streams;
      for (const Record& record : file.records()) {
        const KindFamily family = family_of(record.id.kind);
        if (family == KindFamily::kActivation || family == KindFamily::kActivationGradient) {
          streams[{record.id.step, record.id.microbatch, family}].push_back(&record);
        }
      }
      for (auto& [stream, records] : streams) {
        std::ranges::sort(records, {}, &Record::order);
        for (std::size_t i = 1; i < records.size(); ++i) {
          next_.emplace(records[i - 1]->id, records[i]->id);
        }
      }
    }
  }

  // Nothing behind the last one.
  [[nodiscard]] const TensorId* behind(const TensorId& id) const {
    const auto found = next_.find(id);
    return found == next_.end() ? nullptr : &found->second;
  }

 private:
  using Stream = std::tuple<std::int64_t, std::int64_t, KindFamily>;

  std::map<TensorId, TensorId> next_;
};

class Settler {
 public:
  Settler(const Trace& reference, Trace& candidate, const IsSummedLater& is_summed_later)
      : reference_(reference),
        candidate_(candidate),
        is_summed_later_(is_summed_later),
        next_(candidate) {}

  std::vector<SettledClass> run(int threads) {
    choose();
    if (contradicted_.empty()) {
      return {};
    }
    InferOptions options;
    options.threads = threads;
    options.only = [this](const TensorId& id) { return asked_.contains(id); };
    const Inference found = infer(reference_, candidate_, std::move(options));
    std::vector<SettledClass> settled;
    for (const InferredClass& entry : found.classes) {
      SettledClass result = settle(entry, found);
      if (!is_as_guessed(result)) {
        settled.push_back(std::move(result));
      }
    }
    place_settled(dims_, candidate_);
    return settled;
  }

  // Of what was used, by tensor.
  [[nodiscard]] const SettledDims& dims() const { return dims_; }

 private:
  // What contradicts its guess, and what else of the same class is undeclared.
  void choose() {
    const std::vector<Match> matches = match(reference_, candidate_);
    std::set<PlacementClass> classes;
    for (const Match& match : matches) {
      const PlacementClass tensors = placement_class(match.id);
      // The values of random numbers say nothing of where they lie.
      if (!tensors.field.empty() && match.id.kind != Kind::kDraw && !match.reference.empty() &&
          is_undeclared(match) && contradicts_guess(match)) {
        contradicted_.insert(match.id);
        summed_.emplace(match.id, match.candidate.front().record->placement.partial_over);
        classes.insert(tensors);
      }
    }
    for (const Match& match : matches) {
      if (match.id.kind != Kind::kDraw && !match.reference.empty() && is_undeclared(match) &&
          classes.contains(placement_class(match.id))) {
        asked_.insert(match.id);
      }
    }
  }

  // The dims that all members say whose values agree with the reference at all; the others are
  // wrong themselves, or zero, and follow. Where they disagree, gradients and moments follow their
  // parameter, as it was before the step.
  SettledClass settle(const InferredClass& entry, const Inference& found) {
    SettledClass result{entry.tensors, Settlement::kUnexplained, "", 0};
    std::set<std::string> said;
    std::set<std::string> said_by_parameters;
    std::vector<TensorId> members;
    for (const InferredTensor& tensor : found.tensors) {
      if (tensor.tensors != entry.tensors || !contradicted_.contains(tensor.id)) {
        continue;
      }
      members.push_back(tensor.id);
      if (tensor.has_signal) {
        (tensor.id.kind == Kind::kParam ? said_by_parameters : said).insert(tensor.dims);
      }
    }
    if (!said_by_parameters.empty()) {
      said = std::move(said_by_parameters);
    }
    result.members = members.size();
    if (said.size() != 1 || said.begin()->empty()) {
      return result;
    }
    result.dims = *said.begin();
    const auto is_known_sum = [&, dims = parse_dims(result.dims)](const TensorId& id) {
      return sums_only_over(dims, summed_.at(id)) || (is_summed_later_ && is_summed_later_(id)) ||
             is_summed_at_once(id);
    };
    for (const TensorId& id : members) {
      if (is_known_sum(id)) {
        dims_.emplace(id, result.dims);
      } else {
        ++result.questions;
      }
    }
    result.settlement =
        result.questions == members.size() ? Settlement::kQuestion : Settlement::kUsed;
    return result;
  }

  // Whether the ranks agree on what they computed next, which they would not without a reduction.
  [[nodiscard]] bool is_summed_at_once(const TensorId& id) const {
    const TensorId* const next = next_.behind(id);
    return next != nullptr && !contradicted_.contains(*next);
  }

  // Whether the values say what the records hold already, so that the ranks' tensors are wrong for
  // another reason.
  [[nodiscard]] bool is_as_guessed(const SettledClass& settled) const {
    if (settled.dims.empty()) {
      return false;
    }
    const auto agrees = [&](const RankFile& file, const Record& record) {
      const auto placement = placed(file, record, settled.dims);
      return placement && *placement == record.placement;
    };
    return std::ranges::all_of(candidate_.files(), [&](const RankFile& file) {
      return std::ranges::all_of(file.records(), [&](const Record& record) {
        return !contradicted_.contains(record.id) ||
               placement_class(record.id) != settled.tensors || agrees(file, record);
      });
    });
  }

  const Trace& reference_;
  Trace& candidate_;
  const IsSummedLater& is_summed_later_;
  const NextOnRank next_;
  std::set<TensorId> contradicted_;
  std::set<TensorId> asked_;
  std::map<TensorId, std::string> summed_;  // of the contradicted: axes that the guess sums over
  SettledDims dims_;                        // that are used
};

std::vector<SettledClass> summed_later(Trace& candidate) {
  std::vector<SettledClass> settled;
  for (const SummedGradient& gradient : place_summed_gradients(candidate)) {
    const PlacementClass tensors = placement_class(gradient.id);
    const Settlement how = gradient.is_mean ? Settlement::kAveraged : Settlement::kSummed;
    auto found = std::ranges::find_if(settled, [&](const SettledClass& other) {
      return other.tensors == tensors && other.settlement == how && other.dims == gradient.axes;
    });
    if (found == settled.end()) {
      found = settled.insert(found, {tensors, how, gradient.axes});
    }
    ++found->members;
  }
  return settled;
}

struct Settled {
  std::vector<SettledClass> classes = {};
  SettledDims dims = {};
};

Settled settle(const Trace& reference,
               Trace& candidate,
               int threads,
               const IsSummedLater& is_summed_later) {
  leave_out_absent_addends(candidate);
  if (!has_undeclared(candidate)) {
    return {};
  }
  Settled settled{.classes = summed_later(candidate)};
  Settler settler(reference, candidate, is_summed_later);
  std::ranges::move(settler.run(threads), std::back_inserter(settled.classes));
  settled.dims = settler.dims();
  return settled;
}

}  // namespace

std::string SettledClass::sentence() const {
  const std::string what =
      fmt::format("{} of {}{}",
                  tensors.field,
                  tensors.pattern,
                  tensors.slot > 0 ? fmt::format(", slot {}", tensors.slot) : "");
  switch (settlement) {
    case Settlement::kUsed:
      return fmt::format("{}: nobody declares where it lies; by its values \"{}\" ({} tensors{})",
                         what,
                         dims,
                         members,
                         questions == 0
                             ? ""
                             : fmt::format(", and in {} of them no rank takes the sum", questions));
    case Settlement::kSummed:
    case Settlement::kAveraged:
      return fmt::format(
          "{0}: nobody declares where it lies; its values are addends of a {3} over {1}, which the "
          "program takes after backward: its main gradients are that {3} ({2} tensors)",
          what,
          dims,
          members,
          settlement == Settlement::kSummed ? "sum" : "mean");
    case Settlement::kQuestion:
      return fmt::format(
          "{}: nobody declares where it lies; its values are addends of a sum, \"{}\" ({} "
          "tensors). If that is meant, declare it in an annotation file; else a reduction is "
          "missing",
          what,
          dims,
          members);
    case Settlement::kUnexplained:
      return fmt::format(
          "{}: nobody declares where it lies, and no cut or copy explains its values ({} tensors)",
          what,
          members);
  }
  return what;
}

std::vector<SettledClass> settle_placements(const Trace& reference,
                                            Trace& candidate,
                                            int threads,
                                            const IsSummedLater& is_summed_later) {
  return settle(reference, candidate, threads, is_summed_later).classes;
}

SettledDims settled_dims(const std::string& reference, const std::string& candidate, int threads) {
  Trace placed = Trace::open(candidate);
  if (!has_undeclared(placed)) {
    return {};
  }
  const Trace right = Trace::open(reference);
  static_cast<void>(align_samples(right, placed));
  return settle(right, placed, threads, {}).dims;
}

}  // namespace ttrace
