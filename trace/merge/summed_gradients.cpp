#include "trace/merge/summed_gradients.h"

#include "trace/merge/held_record.h"
#include "trace/merge/merge.h"
#include "trace/place/addends.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// What a step has of one parameter.
struct Gradients {
  std::map<TensorId, std::vector<HeldRecord>> parts;  // by micro-batch
  std::vector<HeldRecord> sum;                        // main gradients
};

std::map<std::string, Gradients> by_parameter(StepTrace& step) {
  std::map<std::string, Gradients> found;
  for (RankFile& file : step.ranks) {
    for (std::size_t i = 0; i < file.records().size(); ++i) {
      const TensorId& id = file.records()[i].id;
      if (id.kind == Kind::kParamGrad) {
        found[id.path].parts[id].push_back({&file, i});
      } else if (id.kind == Kind::kMainGrad) {
        found[id.path].sum.push_back({&file, i});
      }
    }
  }
  return found;
}

// Whether copies of one addend differ of which nobody said that they are copies.
bool is_in_question(const std::vector<HeldRecord>& parts) {
  std::map<int, std::uint64_t> digests;  // by addend
  bool differ = false;
  for (const HeldRecord& part : parts) {
    const Record& record = part.record();
    if (!record.undeclared || record.placement.flat || record.shape.empty()) {
      return false;
    }
    const auto [known, is_new] = digests.emplace(record.placement.partial_index, record.digest);
    differ = differ || (!is_new && known->second != record.digest);
  }
  return differ;
}

// Axes that may be summed over: no placement names them, and no other axis has their coordinates.
std::vector<std::string> axes_of(const HeldRecord& part) {
  const std::string known = "," + part.placement().partial_over + ",";
  std::vector<std::string> axes;
  for (const Axis& axis : part.file->layout().axes) {
    if (axis.size > 1 && axis.follows.empty() &&
        known.find("," + axis.name + ",") == std::string::npos) {
      axes.push_back(axis.name);
    }
  }
  return axes;
}

// A sum over axes, or the mean.
struct Reduction {
  std::vector<std::string> axes;
  bool is_mean = false;
};

// The part as one addend of such a sum, too.
Placement as_addend(const HeldRecord& part, const Reduction& reduction) {
  Placement placement = part.placement();
  const Layout& layout = part.file->layout();
  for (const std::string& axis : reduction.axes) {
    sum_over(placement, layout, axis);
    placement.scale /= reduction.is_mean ? layout.size(axis) : 1;
  }
  return placement;
}

std::optional<std::vector<double>> merged(const std::vector<HeldRecord>& parts,
                                          const Reduction& reduction) {
  std::vector<Record> records;
  for (const HeldRecord& part : parts) {
    records.push_back(part.record());
    records.back().placement = as_addend(part, reduction);
  }
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    shards.push_back(
        {parts[i].file->layout().rank, &records[i], parts[i].file->bytes(parts[i].record())});
  }
  const MergeResult result = merge(shards);
  if (!result.has_tensor() || !result.findings.empty()) {
    return std::nullopt;
  }
  std::vector<double> values(static_cast<std::size_t>(element_count(result.shape)));
  to_double(
      result.type, result.bytes.data(), static_cast<std::int64_t>(values.size()), values.data());
  return values;
}

bool add_up(const Gradients& gradients, const Reduction& reduction) {
  constexpr double kRoundings = 16.0;
  auto rest = merged(gradients.sum, {});
  if (!rest) {
    return false;
  }
  double unit = rounding_error(gradients.sum.front().record().type);
  double norms = 0.0;
  for (const auto& [id, parts] : gradients.parts) {
    const auto part = merged(parts, reduction);
    if (!part || part->size() != rest->size()) {
      return false;
    }
    std::ranges::transform(*rest, *part, rest->begin(), std::minus<>());
    for (const HeldRecord& held : parts) {
      unit = std::max(unit, rounding_error(held.record().type));
      norms += held.record().norm * as_addend(held, reduction).scale;
    }
  }
  double squared = 0.0;
  for (const double value : *rest) {
    squared += value * value;
  }
  return std::sqrt(squared) <= kRoundings * unit * norms;
}

// The smallest set of axes whose ranks' gradients add up.
std::optional<Reduction> reduction_of(const Gradients& gradients) {
  const std::vector<std::string> axes = axes_of(gradients.parts.begin()->second.front());
  std::vector<unsigned> sets;
  for (unsigned set = 1; set < 1U << axes.size(); ++set) {
    sets.push_back(set);
  }
  std::ranges::stable_sort(sets, {}, [](unsigned set) { return std::popcount(set); });
  for (const unsigned set : sets) {
    Reduction chosen;
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if ((set >> i & 1U) != 0) {
        chosen.axes.push_back(axes[i]);
      }
    }
    for (const bool is_mean : {false, true}) {
      chosen.is_mean = is_mean;
      if (add_up(gradients, chosen)) {
        return chosen;
      }
    }
  }
  return std::nullopt;
}

std::string list_of(const std::vector<std::string>& axes) {
  std::string text;
  for (const std::string& axis : axes) {
    text += (text.empty() ? "" : ",") + axis;
  }
  return text;
}

}  // namespace

std::vector<SummedGradient> place_summed_gradients(Trace& trace) {
  std::vector<SummedGradient> placed;
  for (StepTrace& step : trace.steps()) {
    for (auto& [path, gradients] : by_parameter(step)) {
      const bool any = std::ranges::any_of(
          gradients.parts, [](const auto& entry) { return is_in_question(entry.second); });
      if (!any || gradients.sum.empty()) {
        continue;
      }
      const std::optional<Reduction> reduction = reduction_of(gradients);
      if (!reduction) {
        continue;
      }
      for (const auto& [id, parts] : gradients.parts) {
        for (const HeldRecord& part : parts) {
          part.file->settle(part.index, as_addend(part, *reduction));
        }
        placed.push_back({id, list_of(reduction->axes), reduction->is_mean});
      }
    }
  }
  std::ranges::sort(placed, {}, &SummedGradient::id);
  return placed;
}

}  // namespace ttrace
