#include "analysis/timeline/timeline.h"

#include "analysis/findings/wording.h"
#include "analysis/timeline/lanes.h"
#include "analysis/timeline/module_spans.h"
#include "trace/base/kind.h"
#include "trace/file/record.h"

#include <ttrace/collective_call.h>
#include <ttrace/element_type.h>

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr auto kDiverged = "diverged";

// "candidate rank 3 (tp 1, dp 0)". Axes that follow another one would say the same twice.
std::string rank_name(const std::string& trace, const Layout& layout) {
  std::string places;
  for (const Axis& axis : layout.axes) {
    if (axis.size > 1 && axis.follows.empty()) {
      places += fmt::format("{}{} {}", places.empty() ? "" : ", ", axis.name, axis.coordinate);
    }
  }
  return fmt::format("{} rank {}{}", trace, layout.rank, places.empty() ? "" : " (" + places + ")");
}

std::string_view name_of(ModuleRun run) {
  switch (run) {
    case ModuleRun::kForward:
      return "forward";
    case ModuleRun::kAgain:
      return "recomputed";
    case ModuleRun::kBackward:
      return "backward";
  }
  return "";
}

// A rank's file of one step, and when the step begins there on the timeline.
struct Part {
  std::int64_t step = 0;
  const RankFile* file = nullptr;
  std::uint64_t begin = 0;
};

std::vector<Part> parts_of(const Trace& trace, const Selection& selection) {
  std::vector<Part> parts;
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      if (selection.wants_step(step.step) && selection.wants_rank(file.layout().rank)) {
        parts.push_back({step.step, &file});
      }
    }
  }
  return parts;
}

void begin_as_measured(std::vector<Part>& parts) {
  auto origin = std::numeric_limits<std::uint64_t>::max();
  for (const Part& part : parts) {
    origin = std::min(origin, *part.file->began());
  }
  for (Part& part : parts) {
    part.begin = *part.file->began() - origin;
  }
}

// Without times: each step after all of the one before.
void begin_in_order(std::vector<Part>& parts) {
  std::uint64_t begin = 0;
  std::uint64_t longest = 0;
  std::int64_t step = parts.empty() ? 0 : parts.front().step;
  for (Part& part : parts) {
    if (part.step != std::exchange(step, part.step)) {
      begin += std::exchange(longest, 0) + 1000;
    }
    part.begin = begin;
    const EventTimes times = times_of(*part.file, false);
    for (const auto* const some : {&times.records, &times.edges}) {
      longest = std::max(longest, some->empty() ? 0 : std::ranges::max(*some));
    }
  }
}

// A call of a collective on one rank.
struct Collective {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const Record* text = nullptr;  // its description; null if that was not recorded
};

// By path: group and number of the call.
std::map<std::string, Collective> collectives_of(const RankFile& file, const EventTimes& times) {
  std::map<std::string, Collective> calls;
  for (std::size_t i = 0; i < file.records().size(); ++i) {
    const Record& record = file.records()[i];
    if (!is_collective(record.id.kind)) {
      continue;
    }
    const std::uint64_t time = times.records[i];
    const auto [found, is_new] = calls.try_emplace(record.id.path, Collective{time, time, nullptr});
    Collective& call = found->second;
    call.begin = std::min(call.begin, time);
    call.end = std::max(call.end, time);
    if (record.id.kind == Kind::kCollectiveInput && record.id.slot == kCollectiveCallSlot) {
      call.text = &record;
    }
  }
  return calls;
}

// A rank on the timeline, over all steps.
class RankTracks {
 public:
  RankTracks(const std::string& trace,
             const Layout& layout,
             const JudgedIds& judged,
             TraceEventWriter& writer,
             TimelineCounts& counts)
      : judged_(judged),
        writer_(writer),
        counts_(counts),
        process_(writer.process(rank_name(trace, layout))) {
    ++counts_.ranks;
  }

  // `begin`: when the step begins.
  void add(std::int64_t step, const RankFile& file, bool measured, std::uint64_t begin) {
    step_ = step;
    begin_ = begin;
    const EventTimes times = times_of(file, measured);
    add_modules(file, times);
    add_collectives(file, times);
    for (std::size_t i = 0; i < file.records().size(); ++i) {
      add_record(file.records()[i], times.records[i]);
    }
  }

 private:
  // Tracks of one name and their lanes, made when something is there to show.
  Track track(const std::string& name, std::size_t lane) {
    const auto [place, is_new] = tracks_.try_emplace({name, lane});
    if (is_new) {
      place->second =
          writer_.track(process_, lane == 0 ? name : fmt::format("{} ({})", name, lane + 1));
    }
    return place->second;
  }

  [[nodiscard]] const JudgedId* verdict_on(const std::string& id) const {
    const auto found = judged_.by_id.find(id);
    return found == judged_.by_id.end() ? nullptr : &found->second;
  }

  [[nodiscard]] bool has_finding(const RankFile& file, const ModuleSpan& span) const {
    return std::ranges::any_of(span.records, [&](std::size_t position) {
      const JudgedId* const judged = verdict_on(to_string(file.records()[position].id));
      return judged != nullptr && judged->is_finding;
    });
  }

  void add_modules(const RankFile& file, const EventTimes& times) {
    const std::vector<ModuleSpan> spans = module_spans(file, times);
    // Backwards have lanes of their own, recomputed forwards lie where forwards do.
    for (const bool backward : {false, true}) {
      std::vector<const ModuleSpan*> chosen;
      std::vector<Slice> slices;
      for (const ModuleSpan& span : spans) {
        if ((span.run == ModuleRun::kBackward) == backward) {
          chosen.push_back(&span);
          slices.push_back({span.begin, span.end, span.module});
        }
      }
      const std::vector<std::size_t> lanes = lanes_of(slices);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        add_module(file, *chosen[i], track(backward ? "backward" : "forward", lanes[i]));
      }
    }
  }

  void add_module(const RankFile& file, const ModuleSpan& span, const Track& track) {
    TraceEvent event{track, span.module, std::string(name_of(span.run)), begin_ + span.begin};
    event.args = {{"step", step_}, {"microbatch", span.microbatch}};
    if (span.call > 0) {
      event.args["call"] = span.call;
    }
    if (!span.shows_begin) {
      event.args["begin"] = "not recorded: the record before it on this rank";
    }
    if (!span.shows_end) {
      event.args["end"] = "not recorded: the record after it on this rank";
    }
    if (has_finding(file, span)) {
      event.category += std::string(",") + kDiverged;
      event.args["verdict"] = kDiverged;
    }
    writer_.slice(event, begin_ + span.end);
    ++counts_.slices;
  }

  // From what a rank gave to what it got.
  void add_collectives(const RankFile& file, const EventTimes& times) {
    std::vector<TraceEvent> events;
    std::vector<Slice> slices;
    for (const auto& [path, call] : collectives_of(file, times)) {
      events.push_back(event_of(path, call, file));
      slices.push_back({call.begin, call.end, ""});
    }
    const std::vector<std::size_t> lanes = lanes_of(slices);
    for (std::size_t i = 0; i < events.size(); ++i) {
      events[i].track = track("collectives", lanes[i]);
      writer_.slice(events[i], begin_ + slices[i].end);
      ++counts_.slices;
    }
  }

  [[nodiscard]] TraceEvent event_of(const std::string& path,
                                    const Collective& call,
                                    const RankFile& file) const {
    TraceEvent event{.name = path, .category = "collective", .begin = begin_ + call.begin};
    if (call.text != nullptr) {
      const CollectiveCall about = parse_collective_call(file.text(*call.text));
      event.name = description_of(about) + " " + path;
      event.args = {{"module", about.module}, {"ranks", about.size}};
    }
    return event;
  }

  void add_record(const Record& record, std::uint64_t time) {
    const std::string id = to_string(record.id);
    TraceEvent event{track("records", 0), id, std::string(name_of(record.id.kind)), begin_ + time};
    event.args = {{"shape", shape_text(record.shape)}};
    if (const auto logical = record.placement.logical_shape(); logical != record.shape) {
      event.args["logical_shape"] = shape_text(logical);
    }
    event.args.update({{"type", name_of(record.type)},
                       {"bytes", record.bytes},
                       {"order", record.order},
                       {"norm", number_json(record.norm)}});
    const JudgedId* const judged = verdict_on(id);
    if (judged != nullptr) {
      event.args["verdict"] = judged->status;
      if (!judged->cause.empty()) {
        event.args["cause"] = judged->cause;
      }
    }
    if (judged == nullptr || !judged->is_finding) {
      writer_.instant(event);
    } else {
      event.category += std::string(",") + kDiverged;
      writer_.instant(event);
      event.track = track(kDiverged, 0);
      if (id == judged_.first_divergence) {
        event.name = "first divergence: " + id;
      }
      writer_.instant(event);
      ++counts_.marks;
    }
    ++counts_.records;
  }

  const JudgedIds& judged_;
  TraceEventWriter& writer_;
  TimelineCounts& counts_;
  std::int64_t process_;
  std::int64_t step_ = 0;
  std::uint64_t begin_ = 0;
  std::map<std::pair<std::string, std::size_t>, Track> tracks_;
};

}  // namespace

bool has_times(const Trace& trace) {
  return std::ranges::all_of(trace.files(),
                             [](const RankFile& file) { return file.began().has_value(); });
}

TimelineCounts add_timeline(const std::string& name,
                            const Trace& trace,
                            const JudgedIds& judged,
                            TraceEventWriter& writer,
                            const Selection& selection) {
  const bool measured = has_times(trace);
  std::vector<Part> parts = parts_of(trace, selection);
  measured ? begin_as_measured(parts) : begin_in_order(parts);
  TimelineCounts counts;
  std::map<int, RankTracks> ranks;
  for (const Part& part : parts) {
    const Layout& layout = part.file->layout();
    auto found = ranks.find(layout.rank);
    if (found == ranks.end()) {
      found = ranks.try_emplace(layout.rank, name, layout, judged, writer, counts).first;
    }
    found->second.add(part.step, *part.file, measured, part.begin);
  }
  return counts;
}

}  // namespace ttrace
