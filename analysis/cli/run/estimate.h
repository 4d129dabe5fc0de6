// Estimates how much a check would write.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/capture_counts.h"

#include <cstdint>
#include <iosfwd>
#include <string>

namespace ttrace::cli {

// Counts the records of a stored trace as a counting pass would.
[[nodiscard]] CaptureCounts count_trace(const std::string& trace);

struct Estimate {
  CaptureCounts reference;
  int noise_passes = 0;
  bool stored = false;      // the reference is there already
  bool forced = false;      // two forced passes follow the candidate, one in twice as wide a type
  bool golden = false;      // so does a golden one, in f64
  bool renamed = false;     // what the reference writes is stored in the candidate's names as well
  std::string output;       // -o, which need not exist yet
  std::uintmax_t free = 0;  // bytes at `output`

  // Bytes that check writes at least: a candidate holds no less than the reference does.
  [[nodiscard]] std::uintmax_t needed() const;
};

// Kinds by step, then reference, noise, candidate and what is free.
void print_estimate(std::ostream& out, const Estimate& estimate);

// Free space at `path` or, while that does not exist, at the folder in which it would be made.
// Throws UsageError.
[[nodiscard]] std::uintmax_t free_bytes(const std::string& path);

// "12.3 MB", in powers of 1000.
[[nodiscard]] std::string size_text(std::uintmax_t bytes);

}  // namespace ttrace::cli
