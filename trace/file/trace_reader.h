// Reads traces: one rank's file through mmap, and a whole trace directory.
#pragma once

#include "trace/file/edge.h"
#include "trace/file/manifest.h"
#include "trace/file/record.h"
#include "trace/file/rounded_sum.h"

#include <ttrace/export.h>
#include <ttrace/layout.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// One rank's file. Immutable after construction; read from any number of threads.
class TTRACE_API RankFile {
 public:
  // Throws FormatError for a missing, truncated, foreign or newer file; the message names path and
  // cause.
  explicit RankFile(const std::string& path);
  // What the last flush left of a file that was never finished (`.tmp`); records whose bytes did
  // not reach the disk are left out. Throws FormatError where nothing can be read, or while another
  // process writes the file.
  static RankFile unfinished(const std::string& path);
  ~RankFile();
  RankFile(RankFile&&) noexcept;
  RankFile& operator=(RankFile&&) noexcept;
  RankFile(const RankFile&) = delete;  // owns a mapping
  RankFile& operator=(const RankFile&) = delete;

  [[nodiscard]] const std::string& path() const;
  [[nodiscard]] const Layout& layout() const;                // rank, world size, coordinates
  [[nodiscard]] const std::vector<Record>& records() const;  // in the order they were written
  [[nodiscard]] const std::vector<std::string>& notes() const;
  // In the order in which they were written; of an unfinished file none.
  [[nodiscard]] const std::vector<RoundedSum>& sums() const;
  [[nodiscard]] const std::vector<Edge>& edges() const;  // in the order in which modules ran
  // The bytes of one of records(), in the mapping; valid as long as this object.
  [[nodiscard]] std::span<const std::byte> bytes(const Record& record) const;
  // Whether the bytes still have the digest that they had when they were written.
  [[nodiscard]] bool intact(const Record& record) const;

 private:
  struct Impl;
  explicit RankFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One step of a trace.
struct TTRACE_API StepTrace {
  std::int64_t step = 0;
  std::vector<RankFile> ranks;       // ascending; of an interrupted step those that can be read
  std::vector<std::string> lacking;  // why the step is not whole, one sentence per rank
};

class TTRACE_API Trace {
 public:
  // Reads manifest and every rank's file of every step. Throws FormatError where a file is absent
  // (naming rank, step and, where there is one, the text of its `.failed` file) or unreadable.
  static Trace open(const std::string& directory);
  // Reads what is there of an interrupted trace and says in StepTrace::lacking what is not. Throws
  // FormatError for an unreadable manifest.
  static Trace open_partial(const std::string& directory);

  [[nodiscard]] const std::string& directory() const { return directory_; }
  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  [[nodiscard]] const std::vector<StepTrace>& steps() const { return steps_; }

 private:
  std::string directory_;
  Manifest manifest_;
  std::vector<StepTrace> steps_;
};

// Whether every rank's file of every step named by the manifest stands under its final name.
[[nodiscard]] TTRACE_API bool is_complete(const std::string& directory);

}  // namespace ttrace
