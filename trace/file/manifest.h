// `manifest.json`: what a trace is, written once by rank 0.
#pragma once

#include <ttrace/run_description.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr int kFormatVersion = 1;
// The `pass` of a trace that was made of another tool's files.
inline constexpr auto kImportedPass = "imported";

struct Manifest {
  int format_version = kFormatVersion;
  std::string pass;           // "reference", "candidate", kImportedPass
  std::string imported_from;  // of an imported trace: the foreign format, "safetensors"
  int world_size = 1;
  std::vector<std::int64_t> steps;  // traced iterations, ascending
  // That the program began with, traced or not. Nothing before the first traced step, and in a
  // trace of an earlier version.
  std::optional<std::int64_t> first_iteration;
  std::string precision;  // "bf16": what the program computes in, see precision.h
  std::string intended;   // what Session::precision() told it to compute in; empty: the program
                          // did not ask, or an earlier version wrote the trace
  Section layout;         // axis -> size
  Section model;          // must be equal on both sides
  Section data;           // must be equal on both sides
  Section versions;       // ttrace, torch, program; printed where they differ
  Section numerics;       // what the machine does to numbers, see numerics.h; a trace of an
                          // earlier version has none
  Section roles;          // patterns of names by role, see annotations.h; mostly empty
  std::string forced_routing;  // digest of the choices of experts it followed; empty: its own
  std::string names;  // "candidate" or "reference": renamed into theirs (rename_map.h); empty: own
  std::vector<std::string> untraced;  // regular expressions of ids that the program cannot give
  std::string run;  // the token of the pass that wrote it (TTRACE_RUN); empty: it had none
  // Read: the text has the digest with which it was written. Earlier versions wrote none.
  bool has_digest = false;
};

// Whether modules got made-up values instead of their own (TTRACE_INPUTS=dyadic).
[[nodiscard]] bool has_dyadic_inputs(const Manifest& manifest);

// Writes DIR/manifest.json through a temporary name. Throws FormatError with path and cause.
void write_manifest(const std::string& directory, const Manifest& manifest);
// Throws FormatError for a missing, foreign, newer or changed manifest.
[[nodiscard]] Manifest read_manifest(const std::string& directory);

}  // namespace ttrace
