// `manifest.json`: what a trace is, written once by rank 0.
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/export.h>
#include <ttrace/run_description.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

inline constexpr int kFormatVersion = 1;

struct TTRACE_API Manifest {
  int format_version = kFormatVersion;
  std::string pass;  // "reference", "candidate"
  int world_size = 1;
  std::vector<std::int64_t> steps;  // traced iterations, ascending
  std::string precision;            // "f64", "f32", "bf16", "fp8": what the program computes in
  Section layout;                   // axis -> size
  Section model;                    // must be equal on both sides
  Section data;                     // must be equal on both sides
  Section versions;                 // ttrace, torch, program; printed where they differ
  std::string forced_routing;       // digest of the choices of experts it followed; empty: its own
  std::string names;  // "candidate" or "reference": renamed into theirs (rename_map.h); empty: own
  std::vector<std::string> untraced;  // regular expressions of ids that the program cannot give
};

// In "fp8" the operands of products are quantised to eight bits and everything else is BF16, in
// "fp8_f32" everything else is F32; any other precision is the name of an element type. Both throw
// FormatError for an unknown one.
//
// What parameters and activations are kept in.
[[nodiscard]] TTRACE_API ElementType stored_type(const std::string& precision);
// The coarsest type that values are rounded to.
[[nodiscard]] TTRACE_API ElementType coarsest_type(const std::string& precision);

// Writes DIR/manifest.json through a temporary name. Throws FormatError with path and cause.
TTRACE_API void write_manifest(const std::string& directory, const Manifest& manifest);
// Throws FormatError for a missing, foreign or newer manifest.
[[nodiscard]] TTRACE_API Manifest read_manifest(const std::string& directory);

}  // namespace ttrace
