// Reads a whole trace: the files of all ranks and steps of one folder.
#pragma once

#include "trace/file/manifest.h"
#include "trace/file/rank_file.h"

#include <cstdint>
#include <ranges>
#include <string>
#include <vector>

namespace ttrace {

// One step of a trace.
struct StepTrace {
  std::int64_t step = 0;
  std::vector<RankFile> ranks;       // ascending; of an interrupted step those that can be read
  std::vector<std::string> lacking;  // why the step is not whole, one sentence per rank
};

class Trace {
 public:
  // Reads manifest and every rank's file of every step. Throws FormatError if a file is absent
  // (naming rank, step and, where there is one, the text of its `.failed` file) or unreadable.
  static Trace open(const std::string& directory);
  // The same of one of its steps alone, the others of which may be missing.
  static Trace open_step(const std::string& directory, std::int64_t step);
  // Reads the existing part of an interrupted trace; StepTrace::lacking says what is missing.
  // Throws FormatError for an unreadable manifest.
  static Trace open_partial(const std::string& directory);

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<StepTrace>& steps() const { return steps_; }
  // For RankFile::settle().
  [[nodiscard]] std::vector<StepTrace>& steps() { return steps_; }
  // Every rank's file of every step.
  [[nodiscard]] auto files() const {
    return steps_ | std::views::transform(&StepTrace::ranks) | std::views::join;
  }
  [[nodiscard]] auto files() {
    return steps_ | std::views::transform(&StepTrace::ranks) | std::views::join;
  }
  // Whether any rank recorded a tensor of this kind.
  [[nodiscard]] bool holds(Kind kind) const;
  // Whether the elements of all tensors were kept.
  [[nodiscard]] bool keeps_elements() const;

 private:
  void read_step(std::int64_t step);

  std::string directory_;
  Manifest manifest_;
  std::vector<StepTrace> steps_;
};

// Whether every rank's file of every step in the manifest has its final name.
[[nodiscard]] bool is_complete(const std::string& directory);
// Whether every rank's file of this step has.
[[nodiscard]] bool is_complete(const std::string& directory,
                               const Manifest& manifest,
                               std::int64_t step);

}  // namespace ttrace
