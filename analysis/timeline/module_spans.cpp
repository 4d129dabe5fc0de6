#include "analysis/timeline/module_spans.h"

#include "analysis/align/module_path.h"
#include "trace/base/kind.h"

#include <algorithm>
#include <compare>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <string_view>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

constexpr std::uint64_t kNanosecondsPerRecord = 1000;  // where only the order is known

struct Call {
  ModuleRun run = ModuleRun::kForward;
  std::int64_t microbatch = 0;
  std::string module;
  int call = 0;

  auto operator<=>(const Call&) const = default;
};

Call call_of(const TensorId& id, ModuleRun run, std::string module) {
  return {run, id.microbatch, std::move(module), id.call};
}

// What is known of a call.
struct Known {
  std::optional<std::uint64_t> begin;
  std::optional<std::uint64_t> end;
  // Gradients of what it took from other modules: where nothing better is known, the first of them
  // ends its backward.
  std::optional<std::uint64_t> taken;
  std::vector<std::size_t> records;
};

void widen_to(std::optional<std::uint64_t>& least, std::uint64_t time) {
  least = std::min(least.value_or(time), time);
}
void stretch_to(std::optional<std::uint64_t>& most, std::uint64_t time) {
  most = std::max(most.value_or(time), time);
}

using Calls = std::map<Call, Known>;

class Collector {
 public:
  Collector(const RankFile& file, const EventTimes& times) : file_(file), times_(times) {}

  Calls calls() {
    for (std::size_t i = 0; i < file_.records().size(); ++i) {
      add(file_.records()[i].id, times_.records[i], i);
    }
    add_edges();
    return std::move(calls_);
  }

 private:
  void add(const TensorId& id, std::uint64_t time, std::size_t position) {
    if (id.microbatch == kNoMicrobatch) {
      return;
    }
    const ModuleRun forward = id.recompute ? ModuleRun::kAgain : ModuleRun::kForward;
    switch (id.kind) {
      case Kind::kInput:
        widen_to(known(call_of(id, forward, id.path), position).begin, time);
        break;
      case Kind::kOutput:
        stretch_to(known(call_of(id, forward, id.path), position).end, time);
        break;
      case Kind::kGradOutput:
        widen_to(known(call_of(id, ModuleRun::kBackward, id.path), position).begin, time);
        gradients_[{id.microbatch, id.path, id.slot, id.call}] = time;
        break;
      case Kind::kGradInput:
        stretch_to(known(call_of(id, ModuleRun::kBackward, id.path), position).end, time);
        break;
      case Kind::kParamGrad:
        // One gradient of a parameter, however often the module was called.
        stretch_to(known(call_of(id, ModuleRun::kBackward, module_of(id.path)), position).end,
                   time);
        break;
      default:
        break;
    }
  }

  // Inputs that are the memory of another module's output.
  void add_edges() {
    for (std::size_t i = 0; i < file_.edges().size(); ++i) {
      const Edge& edge = file_.edges()[i];
      const TensorId& id = edge.consumer;
      const ModuleRun forward = id.recompute ? ModuleRun::kAgain : ModuleRun::kForward;
      widen_to(calls_[call_of(id, forward, id.path)].begin, times_.edges[i]);
      const TensorId& from = edge.producer;
      const auto gradient = gradients_.find({from.microbatch, from.path, from.slot, from.call});
      const auto backward = calls_.find(call_of(id, ModuleRun::kBackward, id.path));
      if (gradient != gradients_.end() && backward != calls_.end() && backward->second.begin &&
          gradient->second >= *backward->second.begin) {
        widen_to(backward->second.taken, gradient->second);
      }
    }
  }

  Known& known(Call call, std::size_t position) {
    Known& found = calls_[std::move(call)];
    found.records.push_back(position);
    return found;
  }

  using Output = std::tuple<std::int64_t, std::string, int, int>;  // micro-batch to call

  const RankFile& file_;
  const EventTimes& times_;
  Calls calls_;
  std::map<Output, std::uint64_t> gradients_;  // of outputs
};

// Nearest records of the rank, for ends that nothing shows.
class Neighbours {
 public:
  Neighbours(const RankFile& file, const EventTimes& times) {
    for (std::size_t i = 0; i < file.records().size(); ++i) {
      if (!is_collective(file.records()[i].id.kind)) {
        times_.push_back(times.records[i]);
      }
    }
    times_.insert(times_.end(), times.edges.begin(), times.edges.end());
    std::ranges::sort(times_);
  }

  [[nodiscard]] std::uint64_t before(std::uint64_t time) const {
    const auto found = std::ranges::lower_bound(times_, time);
    return found == times_.begin() ? 0 : *std::prev(found);
  }
  [[nodiscard]] std::uint64_t after(std::uint64_t time) const {
    const auto found = std::ranges::upper_bound(times_, time);
    return found == times_.end() ? time : *found;
  }

 private:
  std::vector<std::uint64_t> times_;
};

std::size_t depth_of(std::string_view path) {
  return path.empty() ? 0 : 1 + static_cast<std::size_t>(std::ranges::count(path, '.'));
}

// Settles spans from the innermost module outwards, because an outer one holds what is inside it.
class Settling {
 public:
  Settling(const RankFile& file, const EventTimes& times, Calls&& calls)
      : neighbours_(file, times) {
    for (auto& [call, known] : calls) {
      by_module_[{call.run, call.microbatch, call.module}].push_back(spans_.size());
      spans_.push_back({.run = call.run,
                        .microbatch = call.microbatch,
                        .module = call.module,
                        .call = call.call});
      known_.push_back(std::move(known));
    }
  }

  std::vector<ModuleSpan> spans() {
    std::vector<std::size_t> inwards(spans_.size());
    std::iota(inwards.begin(), inwards.end(), std::size_t{0});
    std::ranges::stable_sort(
        inwards, {}, [&](std::size_t at) { return depth_of(spans_[at].module); });
    for (const std::size_t inner : inwards | std::views::reverse) {
      settle(inner);
      tell_outer(inner);
    }
    std::vector<ModuleSpan> result;
    result.reserve(spans_.size());
    for (const std::size_t i : inwards) {
      result.push_back(std::move(spans_[i]));
    }
    return result;
  }

 private:
  using Name = std::tuple<ModuleRun, std::int64_t, std::string>;  // run, micro-batch, module

  void settle(std::size_t at) {
    ModuleSpan& span = spans_[at];
    Known& known = known_[at];
    span.records = std::move(known.records);
    if (!known.end) {
      known.end = known.taken;
    }
    span.shows_begin = known.begin.has_value();
    span.shows_end = known.end.has_value();
    // Each call has one of the two: some record made it.
    span.end = known.end ? *known.end : neighbours_.after(*known.begin);
    span.begin = known.begin ? *known.begin : neighbours_.before(span.end);
    span.end = std::max(span.begin, span.end);
  }

  // Hands a settled span to the call of the nearest module around it.
  void tell_outer(std::size_t at) {
    const ModuleSpan& span = spans_[at];
    std::string_view path = span.module;
    while (!path.empty()) {
      const std::size_t dot = path.rfind('.');
      path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
      const auto found = by_module_.find({span.run, span.microbatch, std::string(path)});
      if (found != by_module_.end()) {
        if (Known* const outer = around(found->second, span)) {
          widen_to(outer->begin, span.begin);
          if (span.run == ModuleRun::kBackward) {
            stretch_to(outer->end, span.end);
          }
        }
        return;
      }
    }
  }

  // Of several calls, the one during which the inner module ran: the first forward that returned
  // after it, or the last backward that began before it.
  Known* around(const std::vector<std::size_t>& calls, const ModuleSpan& inner) {
    Known* best = nullptr;
    for (const std::size_t call : calls) {
      Known& known = known_[call];
      if (inner.run == ModuleRun::kBackward) {
        if (known.begin && *known.begin <= inner.begin &&
            (best == nullptr || *best->begin < *known.begin)) {
          best = &known;
        }
      } else if (known.end && inner.end <= *known.end &&
                 (best == nullptr || *known.end < *best->end)) {
        best = &known;
      }
    }
    return best;
  }

  Neighbours neighbours_;
  std::vector<ModuleSpan> spans_;
  std::vector<Known> known_;  // of each span
  std::map<Name, std::vector<std::size_t>> by_module_;
};

}  // namespace

EventTimes times_of(const RankFile& file, bool measured) {
  EventTimes times;
  times.records.reserve(file.records().size());
  for (const Record& record : file.records()) {
    times.records.push_back(measured ? record.time : record.order * kNanosecondsPerRecord);
  }
  for (const Edge& edge : file.edges()) {
    times.edges.push_back(measured ? edge.time : edge.order * kNanosecondsPerRecord);
  }
  return times;
}

std::vector<ModuleSpan> module_spans(const RankFile& file, const EventTimes& times) {
  return Settling(file, times, Collector(file, times).calls()).spans();
}

}  // namespace ttrace
