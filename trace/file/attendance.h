// What a rank says of itself beside its trace: that it attached, and, where its program ended too
// early, which iterations it began. So a program without a trace can be told what it lacks.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/base/durable_file.h"

#include <cstdint>
#include <optional>
#include <string>

namespace ttrace {

// Of a program that ended before its last traced iteration began.
struct Attendance {
  std::int64_t awaited = 0;           // the first traced iteration that did not begin
  std::optional<std::int64_t> first;  // the iterations that began, traced or not; nothing: none
  std::optional<std::int64_t> last;

  bool operator==(const Attendance&) const = default;
};

// DIR/ranks/rank00003.json
[[nodiscard]] std::string attendance_file(const std::string& directory, int rank);

// Marks that this rank has attached, as long as the result lives. Throws UsageError where another
// process that lives has the same rank: then every process took itself for the whole job.
[[nodiscard]] FileDescriptor claim_rank(const std::string& directory, int rank, int world_size);
// Whether a rank has claimed its place.
[[nodiscard]] bool has_claims(const std::string& directory);

// Throws FormatError.
void write_attendance(const std::string& directory, int rank, const Attendance& what);
// Of the lowest rank that left one. Throws FormatError for a file that TTrace did not write.
[[nodiscard]] std::optional<Attendance> read_attendance(const std::string& directory);

}  // namespace ttrace
