#include "trace/file/trace_reader.h"

#include "trace/base/durable_file.h"
#include "trace/file/trace_writer.h"

#include <ttrace/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace ttrace {
namespace {

bool stands(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Throws an error that says why `file` of that step and rank is missing.
[[noreturn]] void throw_absent(const std::string& file,
                               const std::string& failed,
                               std::int64_t step,
                               int rank) {
  if (stands(failed)) {
    std::ifstream input(failed);
    std::string text{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
    text.erase(text.find_last_not_of(" \n\r\t") + 1);
    if (text.empty()) {
      text = "it left no reason; perhaps no space was left on its disk";
    }
    TTRACE_THROW(FormatError,
                 "rank ",
                 rank,
                 " could not finish step ",
                 step,
                 ": ",
                 text,
                 " (",
                 failed,
                 "); remove the cause and run the pass again");
  }
  if (stands(temporary_name(file))) {
    TTRACE_THROW(FormatError,
                 "rank ",
                 rank,
                 " was stopped while it wrote step ",
                 step,
                 ": there is only ",
                 temporary_name(file),
                 "; run the pass again, or compare what it holds with `ttrace diff --partial`");
  }
  TTRACE_THROW(FormatError,
               "rank ",
               rank,
               " wrote nothing for step ",
               step,
               ": ",
               file,
               " is missing; forward the TTRACE_ variables to every rank, and check that the "
               "program reached this step");
}

void check_identity(const RankFile& opened, const Manifest& manifest, std::int64_t step, int rank) {
  const std::string& file = opened.path();
  const Layout& layout = opened.layout();
  TTRACE_CHECK(layout.rank == rank && layout.world_size == manifest.world_size,
               FormatError,
               file,
               ": rank ",
               layout.rank,
               " of ",
               layout.world_size,
               " wrote this file, but the manifest expects rank ",
               rank,
               " of ",
               manifest.world_size,
               "; remove the trace and run the pass again");
  TTRACE_CHECK(
      opened.run().empty() || manifest.run.empty() || opened.run() == manifest.run,
      FormatError,
      file,
      ": another pass wrote this file than the manifest; two programs wrote to one folder: "
      "remove the trace and run the pass again");
  for (const Record& record : opened.records()) {
    TTRACE_CHECK(record.id.step == step,
                 FormatError,
                 file,
                 ": the file holds ",
                 to_string(record.id),
                 ", which does not belong to step ",
                 step,
                 "; remove the trace and run the pass again");
  }
}

RankFile open_rank(const std::string& directory,
                   const Manifest& manifest,
                   std::int64_t step,
                   int rank) {
  const std::string file = step_file(directory, step, rank);
  if (!stands(file)) {
    throw_absent(file, failed_file(directory, step, rank), step, rank);
  }
  RankFile opened(file);
  check_identity(opened, manifest, step, rank);
  return opened;
}

bool has_same_axes(const Layout& left, const Layout& right) {
  return std::equal(left.axes.begin(),
                    left.axes.end(),
                    right.axes.begin(),
                    right.axes.end(),
                    [](const Axis& one, const Axis& other) {
                      return one.name == other.name && one.size == other.size &&
                             one.follows == other.follows;
                    });
}

// The ranks' layouts have to be of one run, or shards would be put where they do not belong.
void check_axes(const StepTrace& step) {
  for (const RankFile& file : step.ranks) {
    const RankFile& first = step.ranks.front();
    TTRACE_CHECK(has_same_axes(first.layout(), file.layout()),
                 FormatError,
                 file.path(),
                 ": rank ",
                 file.layout().rank,
                 " has the layout ",
                 to_string(file.layout()),
                 ", but rank ",
                 first.layout().rank,
                 " has ",
                 to_string(first.layout()),
                 "; give Session::attach the same axes on every rank and run the pass again");
  }
}

// Checks that a complete step has a rank at every coordinate of every axis.
void check_coordinates(const StepTrace& step) {
  const RankFile& first = step.ranks.front();
  for (const Axis& axis : first.layout().axes) {
    for (int coordinate = 0; coordinate < axis.size; ++coordinate) {
      const bool held =
          std::any_of(step.ranks.begin(), step.ranks.end(), [&](const RankFile& file) {
            return file.layout().coordinate(axis.name) == coordinate;
          });
      TTRACE_CHECK(held,
                   FormatError,
                   first.path(),
                   ": axis ",
                   axis.name,
                   " has size ",
                   axis.size,
                   ", but none of the ",
                   step.ranks.size(),
                   " ranks has coordinate ",
                   coordinate,
                   " on it; give Session::attach each rank's own coordinates and run the pass "
                   "again");
    }
  }
}

// Adds a rank's finished file, or what its interrupted writer left, or why there is neither.
void open_what_is_there(const std::string& directory,
                        const Manifest& manifest,
                        int rank,
                        StepTrace& step) {
  const std::string file = step_file(directory, step.step, rank);
  const bool unfinished = !stands(file) && stands(temporary_name(file));
  try {
    if (!unfinished) {
      step.ranks.push_back(open_rank(directory, manifest, step.step, rank));
      return;
    }
    RankFile opened = RankFile::unfinished(temporary_name(file));
    check_identity(opened, manifest, step.step, rank);
    step.lacking.push_back("rank " + std::to_string(rank) + " was stopped while it wrote step " +
                           std::to_string(step.step) + ": " +
                           std::to_string(opened.records().size()) +
                           " tensors were read from what it had flushed to " + opened.path());
    step.ranks.push_back(std::move(opened));
  } catch (const FormatError& error) {
    step.lacking.push_back(error.message());
  }
}

}  // namespace

bool Trace::holds(Kind kind) const {
  return std::ranges::any_of(files(), [kind](const RankFile& file) {
    return std::ranges::any_of(file.records(),
                               [kind](const Record& record) { return record.id.kind == kind; });
  });
}

bool Trace::keeps_elements() const {
  return std::ranges::all_of(files(), [](const RankFile& file) {
    return std::ranges::all_of(file.records(),
                               [](const Record& record) { return record.keep == Keep::kBytes; });
  });
}

Trace Trace::open(const std::string& directory) {
  Trace trace;
  trace.directory_ = directory;
  trace.manifest_ = read_manifest(directory);
  for (const std::int64_t step : trace.manifest_.steps) {
    trace.read_step(step);
  }
  return trace;
}

Trace Trace::open_step(const std::string& directory, std::int64_t step) {
  Trace trace;
  trace.directory_ = directory;
  trace.manifest_ = read_manifest(directory);
  trace.manifest_.steps = {step};
  trace.read_step(step);
  return trace;
}

void Trace::read_step(std::int64_t step) {
  StepTrace opened;
  opened.step = step;
  for (int rank = 0; rank < manifest_.world_size; ++rank) {
    opened.ranks.push_back(open_rank(directory_, manifest_, step, rank));
  }
  check_axes(opened);
  check_coordinates(opened);
  steps_.push_back(std::move(opened));
}

Trace Trace::open_partial(const std::string& directory) {
  Trace trace;
  trace.directory_ = directory;
  trace.manifest_ = read_manifest(directory);
  for (const std::int64_t step : trace.manifest_.steps) {
    StepTrace opened;
    opened.step = step;
    for (int rank = 0; rank < trace.manifest_.world_size; ++rank) {
      open_what_is_there(directory, trace.manifest_, rank, opened);
    }
    check_axes(opened);
    trace.steps_.push_back(std::move(opened));
  }
  return trace;
}

bool is_complete(const std::string& directory) {
  if (!stands((std::filesystem::path(directory) / "manifest.json").string())) {
    return false;
  }
  const Manifest manifest = read_manifest(directory);
  return std::ranges::all_of(
      manifest.steps, [&](std::int64_t step) { return is_complete(directory, manifest, step); });
}

bool is_complete(const std::string& directory, const Manifest& manifest, std::int64_t step) {
  for (int rank = 0; rank < manifest.world_size; ++rank) {
    if (!stands(step_file(directory, step, rank))) {
      return false;
    }
  }
  return true;
}

}  // namespace ttrace
