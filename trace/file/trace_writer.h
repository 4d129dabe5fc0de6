// Writes the records of one (step, rank) into `step000000/rank00003.h5`.
//
// Thread-safety: one thread at a time; HDF5 has one lock per process, so use one writer thread.
// A file appears under its final name only when every call succeeded: it is written as `.tmp`,
// flushed, fsynced and renamed by commit(). After the first failed HDF5 call the writer refuses to
// commit (on a full disk H5Dwrite fails while H5Fflush and H5Fclose report success).
#pragma once

#include "trace/base/keep.h"
#include "trace/base/not_seen.h"
#include "trace/file/code_lines.h"
#include "trace/file/edge.h"
#include "trace/file/record.h"
#include "trace/file/rounded_sum.h"

#include <ttrace/layout.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

struct TraceWriterOptions {
  bool named =
      false;  // give every tensor a dataset of its own, for other HDF5 tools (TTRACE_NAMED=1)
  // When the step began, in nanoseconds since 1970-01-01 UTC. Without it the file has no times.
  std::optional<std::uint64_t> began = {};
  Keeping keeping = {};
  std::string run = {};  // the token of the pass (TTRACE_RUN); empty: it has none
};

class TraceWriter {
 public:
  // Creates the folder and `<file>.tmp`. `file` is the final name, e.g. step_file(dir, step, rank).
  // Throws FormatError with path and cause.
  TraceWriter(std::string file, const Layout& layout, TraceWriterOptions options = {});
  ~TraceWriter();  // without commit() the `.tmp` stays behind, never the final name
  TraceWriter(const TraceWriter&) = delete;  // owns an open file
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Appends one tensor: its bytes, or what the options say if it can be sketched. Requires:
  // bytes.size() == element count * element size. Throws FormatError.
  void append(Record record, std::span<const std::byte> bytes);

  // Gradients that never arrived and similar remarks, one sentence each; kept in the file.
  void note(std::string remark);
  // What the run did that nobody could look at. Equal ones are kept once.
  void not_seen(NotSeen fact);
  // See CodeLines::add().
  void code(CodeRole role, const std::string& path, const std::string& text);
  void sum(const RoundedSum& sum);
  void edge(const Edge& edge);

  // Makes what was appended so far readable by `--partial` after a crash.
  void flush();

  // Writes index and attributes, closes, fsyncs, renames. Throws FormatError; then nothing is
  // renamed.
  void commit();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

inline constexpr std::int64_t kSketchedElements = std::int64_t{32} << 10;

// Whether sizes decide of a tensor, the logical one has so many elements, in whatever precision,
// its type has a sketch, and it is known where it lies and that ranks hold all of it. Bytes of all
// others are kept, whatever is asked for.
[[nodiscard]] bool can_be_sketched(const Record& record);
// What a trace keeps of it.
[[nodiscard]] Keep kept_of(const Record& record, const Keeping& keeping);

// DIR/step000000/rank00003.h5
[[nodiscard]] std::string step_file(const std::string& directory, std::int64_t step, int rank);
// DIR/start/rank00003.h5: parameters before the optimizer was built (consistent start).
[[nodiscard]] std::string start_file(const std::string& directory, int rank);
// DIR/step000000/rank00003.failed: why a rank could not finish a step; text.
[[nodiscard]] std::string failed_file(const std::string& directory, std::int64_t step, int rank);
// Throws UsageError where `directory` already holds something, or is no folder.
void require_free_folder(const std::string& directory);

}  // namespace ttrace
