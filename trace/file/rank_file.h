// One rank's file of a trace, read through mmap.
#pragma once

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
#include <string_view>
#include <vector>

namespace ttrace {

struct Sketch;

// One rank's file. Immutable after construction; read from any number of threads.
class RankFile {
 public:
  // Throws FormatError for a missing, truncated, foreign or newer file; the message names path and
  // cause.
  explicit RankFile(const std::string& path);
  // The part of an unfinished file (`.tmp`) that the last flush left. Records whose bytes did not
  // reach the disk are left out. Throws FormatError if nothing can be read, or while another
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
  // When the step began on this rank, in nanoseconds since 1970-01-01 UTC. Nothing in files of
  // earlier versions, and of imported or merged traces: their records and edges have no times.
  [[nodiscard]] std::optional<std::uint64_t> began() const;
  [[nodiscard]] const std::vector<std::string>& notes() const;
  // What the run did that nobody could look at; an unfinished file says nothing of it.
  [[nodiscard]] const std::vector<NotSeen>& not_seen() const;
  [[nodiscard]] const CodeLines& code() const;  // an unfinished file has none
  // The sums in the order in which they were written; an unfinished file has none.
  [[nodiscard]] const std::vector<RoundedSum>& sums() const;
  [[nodiscard]] const std::vector<Edge>& edges() const;  // in the order in which modules ran
  // The bytes of one of records(), in the mapping; valid as long as this object. Nothing where they
  // were not kept.
  [[nodiscard]] std::span<const std::byte> bytes(const Record& record) const;
  // The sketch of one of records(); nothing where the file has none.
  [[nodiscard]] std::optional<Sketch> sketch(const Record& record) const;
  // Its bytes, of a record that holds text. Throws FormatError where it is not intact.
  [[nodiscard]] std::string_view text(const Record& record) const {
    require_intact(record);
    const std::span<const std::byte> own = bytes(record);
    return {reinterpret_cast<const char*>(own.data()), own.size()};
  }
  // Whether the bytes still have the digest with which they were written.
  [[nodiscard]] bool intact(const Record& record) const;
  // Throws FormatError with path and id where they do not.
  void require_intact(const Record& record) const;
  // Whether everything beside the tensors' bytes has the digest with which it was written. False in
  // files of earlier versions, which have none, and in unfinished ones.
  [[nodiscard]] bool has_digests() const;
  // The token of the pass that wrote the file; empty where it had none.
  [[nodiscard]] const std::string& run() const;
  // Sets where records()[index] lies, in this object only. Requires: an undeclared record, whose
  // shape is the placement's local one.
  void settle(std::size_t index, Placement placement);
  // Sets what records() returns, in this object only. Requires: records of this file, some of them
  // perhaps left out or under other ids, and borrowed ones.
  void set_records(std::vector<Record> records);
  // A record of `lender`, to be one of this file's: bytes() finds its bytes where they are, also
  // when the lender is gone.
  [[nodiscard]] Record borrow(const RankFile& lender, Record record);
  // Sets what edges() and sums() return, in this object only.
  void set_links(std::vector<Edge> edges, std::vector<RoundedSum> sums);

 private:
  struct Impl;
  explicit RankFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ttrace
