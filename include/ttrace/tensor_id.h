// The name that one tensor has in every run, whatever the layout.
#pragma once

#include <ttrace/kind.h>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

inline constexpr std::int64_t kNoMicrobatch = -1;

// Prints as `s0/m3/output/decoder.layers.2.mlp.linear_fc2/0`; `#1` follows for a second call and
// `~` for a recomputed value. A tensor of the whole step has no `m` part:
// `s0/main_grad/decoder.../0`.
struct TensorId {
  std::int64_t step = 0;                    // iteration of the training loop
  std::int64_t microbatch = kNoMicrobatch;  // global: i * dp + dp_rank for the i-th local one
  Kind kind = Kind::kOutput;
  std::string path;        // canonical: global layer numbers, no wrappers
  int slot = 0;            // position among the module's outputs or inputs
  int call = 0;            // 0 for the first call within the micro-batch
  bool recompute = false;  // value of a forward that ran again inside backward

  auto operator<=>(const TensorId&) const = default;
};

[[nodiscard]] std::string to_string(const TensorId& id);
// Inverse of to_string. Throws FormatError that quotes the text and says what was expected.
[[nodiscard]] TensorId parse_tensor_id(std::string_view text);

// Whether `path` is made of non-empty parts of [A-Za-z0-9_-] joined by dots.
[[nodiscard]] bool is_canonical_path(std::string_view path);

}  // namespace ttrace
