#include "analysis/rename/rename.h"

#include "analysis/align/matching.h"
#include "analysis/findings/wording.h"
#include "analysis/rename/rename_plan.h"
#include "analysis/rename/renaming.h"
#include "trace/base/kind.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

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
        tensors[place->second].reference.push_back(shard_of(file, record));
      }
    }
  }

  std::vector<RankFile> files;
  std::vector<Match> tensors;
};

// The manifest of a renamed trace.
Manifest renamed_manifest(const Trace& trace, const RenameOptions& options) {
  Manifest manifest = trace.manifest();
  manifest.names = name_of(options.to);
  manifest.untraced.clear();  // expressions on the old names, as are patterns of roles
  manifest.roles.clear();
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
               fmt::format("{} is not empty; choose another folder, or remove it", target));
}

// Copies the notes of all ranks, and what they did not see.
void copy_notes(const StepTrace& step, TraceWriter& writer) {
  for (const RankFile& file : step.ranks) {
    for (const std::string& note : file.notes()) {
      writer.note(step.ranks.size() == 1 ? note
                                         : fmt::format("rank {}: {}", file.layout().rank, note));
    }
    for (const NotSeen& fact : file.not_seen()) {
      writer.not_seen(fact);
    }
  }
}

// Throws UsageError if it has been renamed, or has no elements.
Trace open_unrenamed(const std::string& source) {
  Trace trace = Trace::open(source);
  TTRACE_CHECK(
      trace.keeps_elements(),
      UsageError,
      fmt::format("{} keeps sketches, which cannot be laid out anew under other names; trace "
                  "with TTRACE_KEEP=bytes",
                  source));
  TTRACE_CHECK(trace.manifest().names.empty(),
               UsageError,
               fmt::format("{} already has the {}'s names; give the trace that its program wrote",
                           source,
                           trace.manifest().names));
  return trace;
}

// All that goes into the renamed trace. What ranks give to collectives is each rank's own.
std::vector<Match> tensors_to_rename(const Trace& trace) {
  std::vector<Match> tensors = tensors_of(trace);
  if (trace.manifest().world_size > 1) {
    std::erase_if(tensors, [](const Match& match) { return is_collective(match.id.kind); });
  }
  return tensors;
}

// Entries of the map that no tensor matches.
void add_unused_entries(const RenamePlan& steps,
                        const RenamePlan& start,
                        const RenameMap& map,
                        Names from,
                        std::vector<std::string>& warnings) {
  for (std::size_t rule = 0; rule < map.rule_count(); ++rule) {
    if (map.has_names(rule, from) && !steps.used()[rule] && !start.used()[rule]) {
      warnings.push_back(fmt::format(
          "{}: no tensor of the {} matches this entry", map.place_of(rule), name_of(from)));
    }
  }
}

void write_start(const std::string& target,
                 std::vector<Conversion>& conversions,
                 Renaming& renaming) {
  TraceWriter writer(start_file(target, 0), Layout());
  renaming.write(conversions, writer);
  writer.commit();
}

void write_steps(const Trace& trace,
                 const std::string& target,
                 std::vector<Conversion>& conversions,
                 Renaming& renaming) {
  auto next = conversions.begin();
  for (const StepTrace& step : trace.steps()) {
    const auto end = std::find_if(next, conversions.end(), [&](const Conversion& conversion) {
      return conversion.targets.front().step != step.step;
    });
    // Of one rank, times stay what they were; the tensors of several have no one time.
    const bool is_alone = step.ranks.size() == 1;
    TraceWriter writer(step_file(target, step.step, 0),
                       is_alone ? step.ranks.front().layout() : Layout(),
                       {.began = is_alone ? step.ranks.front().began() : std::nullopt});
    renaming.write({next, end}, writer);
    renaming.write_edges(step, writer);
    copy_notes(step, writer);
    for (std::string& note : renaming.take_notes()) {
      writer.note(std::move(note));
    }
    writer.commit();
    next = end;
  }
}

}  // namespace

RenameResult rename_trace(const std::string& source,
                          const std::string& target,
                          const RenameMap& map,
                          const RenameOptions& options) {
  const Trace trace = open_unrenamed(source);
  require_free(target);
  const Names from = other(options.to);
  const std::vector<Match> tensors = tensors_to_rename(trace);
  const Start start(trace);
  RenamePlan plan(map, from);
  std::ranges::for_each(tensors, [&](const Match& match) { plan.add(match); });
  RenamePlan start_plan(map, from);
  std::ranges::for_each(start.tensors, [&](const Match& match) { start_plan.add(match); });
  RenameResult result;
  std::vector<Conversion> conversions = plan.result(result.warnings);
  std::vector<std::string> ignored;  // the same as of the steps
  std::vector<Conversion> start_conversions = start_plan.result(ignored);

  Renaming renaming(target, map, options, conversions.size() + start_conversions.size());
  fs::create_directories(target);
  write_manifest(target, renamed_manifest(trace, options));
  map.save(target + "/" + kRenameFile);
  if (!start.files.empty()) {
    write_start(target, start_conversions, renaming);
  }
  result.only_here = plan.only_here();
  if (result.only_here > 0) {
    renaming.note(fmt::format("the rename map leaves out {} that the {} does not have",
                              counted(result.only_here, "tensor"),
                              name_of(options.to)));
  }
  write_steps(trace, target, conversions, renaming);
  for_each_noise_pass(source,
                      [&](const NoisePass& pass) { renaming.write_noise(pass, conversions); });
  if (const auto repeated = read_self_check(source)) {
    renaming.write_noise(*repeated, conversions);
  }
  result.tensors = renaming.tensors();
  add_unused_entries(plan, start_plan, map, from, result.warnings);
  return result;
}

RenameMap map_of(const std::string& renamed_trace) {
  return RenameMap::load(renamed_trace + "/" + kRenameFile);
}

}  // namespace ttrace
