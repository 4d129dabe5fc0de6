#include "analysis/verify.h"

#include "analysis/align/matching.h"
#include "analysis/findings/wording.h"
#include "trace/file/noise_table.h"
#include "trace/file/trace_reader.h"
#include "trace/file/trace_writer.h"
#include "trace/merge/merge.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace ttrace {
namespace {

class Verifier {
 public:
  Verifier(const Trace& trace, const VerifyProgress& progress)
      : trace_(trace), progress_(progress) {}

  Verification run() {
    result_.undigested += trace_.manifest().has_digest ? 0 : 1;
    for (const StepTrace& step : trace_.steps()) {
      result_.problems.insert(result_.problems.end(), step.lacking.begin(), step.lacking.end());
      total_files_ += step.ranks.size();
    }
    for (const StepTrace& step : trace_.steps()) {
      for (const RankFile& file : step.ranks) {
        check_digests(file);
        check_layout(file);
      }
      check_coordinates(step);
    }
    check_start();
    check_tensors();
    check_noise();
    return std::move(result_);
  }

 private:
  void complain(std::string sentence) { result_.problems.push_back(std::move(sentence)); }

  template <class... Parts>
  void complain(const std::string& where, fmt::format_string<Parts...> sentence, Parts&&... parts) {
    complain(where + ": " + fmt::format(sentence, std::forward<Parts>(parts)...));
  }

  void note_file(bool has_digests) {
    ++result_.files;
    result_.undigested += has_digests ? 0 : 1;
  }

  void check_digests(const RankFile& file) {
    for (const Record& record : file.records()) {
      if (!file.intact(record)) {
        complain(file.path(),
                 "the bytes of {} have changed since they were written: their digest "
                 "differs from the index",
                 to_string(record.id));
      }
      result_.bytes += record.bytes;
    }
    note_file(file.has_digests());
    if (progress_) {
      progress_("digests", result_.files, total_files_);
    }
  }

  // Against the manifest, whose layout has the sizes of all axes.
  void check_layout(const RankFile& file) {
    const Section& expected = trace_.manifest().layout;
    std::set<std::string> axes;
    for (const Axis& axis : file.layout().axes) {
      axes.insert(axis.name);
      const auto found = expected.find(axis.name);
      const std::string size = std::to_string(axis.size);
      if (found == expected.end() ? axis.size != 1 : found->second != size) {
        complain(file.path(),
                 "axis {} has size {}, but {} in the manifest",
                 axis.name,
                 size,
                 found == expected.end() ? "is missing" : "has size " + found->second);
      }
    }
    for (const auto& [axis, size] : expected) {
      if (!axes.contains(axis) && size != "1") {
        complain(file.path(),
                 "the manifest has an axis {} of size {}, but this file does not",
                 axis,
                 size);
      }
    }
  }

  // If the axes number all ranks, two ranks cannot have the same coordinates.
  void check_coordinates(const StepTrace& step) {
    std::map<std::vector<int>, int> rank_at;
    for (const RankFile& file : step.ranks) {
      std::vector<int> place;
      std::int64_t places = 1;
      for (const Axis& axis : file.layout().axes) {
        if (axis.follows.empty()) {
          place.push_back(axis.coordinate);
          places *= axis.size;
        }
      }
      const auto [other, is_new] = rank_at.emplace(place, file.layout().rank);
      if (!is_new && places == file.layout().world_size) {
        complain(file.path(),
                 "rank {} and rank {} have the same coordinates in the layout",
                 file.layout().rank,
                 other->second);
      }
    }
  }

  void check_start() {
    const std::string folder = trace_.directory() + "/start";
    std::error_code error;
    if (!std::filesystem::exists(folder, error)) {
      return;
    }
    for (int rank = 0; rank < trace_.manifest().world_size; ++rank) {
      try {
        check_digests(RankFile(start_file(trace_.directory(), rank)));
      } catch (const FormatError& problem) {
        complain(problem.message());
      }
    }
  }

  // Merges tensors only in complete steps, because elsewhere parts are missing anyway.
  void check_tensors() {
    std::set<std::int64_t> broken;
    for (const StepTrace& step : trace_.steps()) {
      if (!step.lacking.empty()) {
        broken.insert(step.step);
      }
    }
    const std::vector<Match> tensors = tensors_of(trace_);
    for (const Match& tensor : tensors) {
      const Placement& placement = tensor.reference.front().record->placement;
      sizes_.emplace(tensor.id, element_count(placement.logical_shape()));
      if (!broken.contains(tensor.id.step)) {
        check_merge(tensor);
      }
      ++result_.tensors;
      if (progress_) {
        progress_("placements", result_.tensors, tensors.size());
      }
    }
  }

  void check_merge(const Match& tensor) {
    std::vector<Shard> shards = tensor.reference;
    for (Shard& shard : shards) {
      shard.file = nullptr;  // its digests were compared
    }
    try {
      for (const MergeFinding& finding : merge(shards).findings) {
        complain(to_string(tensor.id), "{}: {}", name_of(finding.defect), finding.message);
      }
    } catch (const FormatError& problem) {
      complain(to_string(tensor.id) + ": " + problem.message());
    }
  }

  void check_noise() {
    std::vector<std::string> files = noise_files(trace_.directory());
    const std::string self_check = noise_file(trace_.directory(), kSelfCheckSeed);
    if (std::filesystem::exists(self_check)) {
      files.push_back(self_check);
    }
    for (const std::string& file : files) {
      try {
        const NoisePass pass = read_noise_file(file);
        if (noise_file(trace_.directory(), pass.seed) != file) {
          complain(
              file, "the file holds the noise of seed {}, which its name contradicts", pass.seed);
        }
        std::size_t unknown = 0;
        for (const NoiseRow& row : pass.rows) {
          const auto known = sizes_.find(row.id);
          unknown += known == sizes_.end() ? 1 : 0;
          if (known != sizes_.end()) {
            check_noise_row(file, row, known->second);
          }
        }
        if (unknown > 0) {
          complain(
              file, "the file names {} that the trace does not hold", counted(unknown, "tensor"));
        }
        note_file(pass.has_digests);
      } catch (const FormatError& problem) {
        complain(problem.message());
      }
    }
  }

  void check_noise_row(const std::string& file, const NoiseRow& row, std::int64_t count) {
    try {
      check_size(row, count);
    } catch (const FormatError& problem) {
      complain(file + ": " + problem.message());
    }
  }

  const Trace& trace_;
  const VerifyProgress& progress_;
  Verification result_;
  std::size_t total_files_ = 0;
  std::map<TensorId, std::int64_t> sizes_;  // elements
};

}  // namespace

Verification verify(const std::string& directory, const VerifyProgress& progress) {
  const Trace trace = Trace::open_partial(directory);
  std::size_t readable = 0;
  std::string first_problem = "the trace has no step";
  for (const StepTrace& step : trace.steps()) {
    readable += step.ranks.size();
    if (!step.lacking.empty() && readable == 0) {
      first_problem = step.lacking.front();
    }
  }
  TTRACE_CHECK(
      readable > 0,
      FormatError,
      fmt::format(
          "no rank's file in {} can be read; the first problem: {}", directory, first_problem));
  return Verifier(trace, progress).run();
}

}  // namespace ttrace
