// The effect of round-off on every tensor of the reference in one noise pass.
//
// The table lies inside the reference's own trace as `noise/00001.h5`, one file per pass, so a
// stored reference brings its noise along.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

// Noise run m against reference r, over one logical tensor.
struct NoiseRow {
  TensorId id;
  double sum_squared = 0.0;     // ||m - r||^2
  double max_abs = 0.0;         // max |m - r|
  std::uint64_t nonfinite = 0;  // NaN and Inf in m where r is finite
  // <m - r, r>: what a factor of m would be. Tables of earlier versions have none.
  std::optional<double> along_reference = {};
  // False: code that the observer does not see made values of the tensor, and no noise was put on
  // them. That nothing moved then says nothing. Tables of earlier versions do not tell.
  std::optional<bool> covered = {};
  // ||m - r||^2 of every slice (slices.h), if there are slices and sum_squared is above 0. Tables
  // of earlier versions have none.
  std::vector<double> slices = {};
};

// TTRACE_NOISE_SEED of the self-check, which repeats the reference and moves nothing: its table
// holds what the reference does not reproduce by itself.
inline constexpr int kSelfCheckSeed = 0;

struct NoisePass {
  int seed = 0;  // TTRACE_NOISE_SEED: from 1, or kSelfCheckSeed
  std::vector<NoiseRow> rows;
  std::string run = {};  // the token of the pass (TTRACE_RUN); empty: it had none
  // Read: the tables have the digests with which they were written. Earlier versions wrote none.
  bool has_digests = false;
};

// DIR/noise/00001.h5; DIR/noise/self.h5 of the self-check.
[[nodiscard]] std::string noise_file(const std::string& directory, int seed);
// DIR/noise/00001: the trace that a pass of several ranks writes, from which its table is made
// (noise_of_ranks.h).
[[nodiscard]] std::string noise_trace(const std::string& directory, int seed);

// Throws FormatError with the tensor's name where no `count` elements of at most max_abs have that
// squared sum.
void check_size(const NoiseRow& row, std::int64_t count);

// Writes through a temporary name. Throws FormatError.
void write_noise(const std::string& directory, const NoisePass& pass);
// The finished tables of a reference's noise passes, by name; none where it has no noise.
[[nodiscard]] std::vector<std::string> noise_files(const std::string& directory);
// Throws FormatError with path and cause.
[[nodiscard]] NoisePass read_noise_file(const std::string& path);
// Hands the passes of a reference over one by one, in the order of noise_files(): one is read at a
// time, and is gone after the call. Throws FormatError.
void for_each_noise_pass(const std::string& directory,
                         const std::function<void(const NoisePass&)>& use);
// The table of the self-check; nothing where the reference was not repeated. Throws FormatError.
[[nodiscard]] std::optional<NoisePass> read_self_check(const std::string& directory);
// NoisePass::run of a table. Throws FormatError.
[[nodiscard]] std::string run_of_noise(const std::string& path);
// All noise passes of a reference, by seed; empty if there are none. Throws FormatError.
[[nodiscard]] std::vector<NoisePass> read_noise(const std::string& directory);

}  // namespace ttrace
