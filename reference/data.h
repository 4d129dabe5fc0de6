// Samples from a text file. A byte is a token; which bytes a sample has follows from (seed, step,
// micro-batch, sample) by integer arithmetic, so that any program reproduces them.
// A corpus makes samples on the CPU.
//
// Thread-safety: const after construction.
#pragma once

#include "config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ttrace::reference {

struct Samples {
  at::Tensor tokens;     // [B, S] i64: what the model sees
  at::Tensor labels;     // [B, S] i64: what it is to predict, the token after each
  at::Tensor counts;     // [B, S] bool: whether the token's loss counts
  at::Tensor positions;  // [B, S] i64: of the token within its document
  at::Tensor documents;  // [B, S] i64: which document of the sample the token belongs to
};

// Sample i becomes order[i]; order [B] i64.
[[nodiscard]] Samples reordered(const Samples& samples, const at::Tensor& order);

// The same samples, where the model is.
[[nodiscard]] Samples moved_to(c10::Device device, const Samples& samples);

class ByteCorpus {
 public:
  // Reads the whole file. Throws UsageError where it cannot be read or is too short for a sample.
  ByteCorpus(const DataConfig& data, const ModelConfig& model);

  // tokens[b] = (V - 1), byte[o], ..., byte[o + S - 2]; labels[b] = byte[o], ..., byte[o + S - 1]
  // with o = splitmix64(z) mod (bytes - S), z = ((seed c + step) c + microbatch) c + b, c =
  // 1000003. Masked::kPrompt: counts[b][i] = (i >= p) with p = splitmix64(z c) mod (S/2 + 1).
  // Documents::kPacked: lengths are 2 + splitmix64(z c + k) mod (S/2 - 1), k = 1, 2, ..., until
  // fewer than 2 tokens would be left, which the last one takes as well. A document's first token
  // becomes V - 1. The label of its last token does so too, being the next document's, and does not
  // count.
  [[nodiscard]] Samples samples(std::int64_t step, std::int64_t microbatch) const;

  // XXH3-64 of the file, 16 hexadecimal digits.
  [[nodiscard]] std::string digest() const;

 private:
  void pack(Samples& samples, std::int64_t b, std::uint64_t state) const;

  std::string bytes_;
  std::uint64_t seed_;
  Documents documents_;
  Masked masked_;
  std::int64_t samples_;   // B
  std::int64_t sequence_;  // S
  std::int64_t begin_;     // token that opens each sample: V - 1
};

// One step of the generator by Steele, Lea and Flood ("Fast splittable pseudorandom number
// generators", OOPSLA 2014) with the finaliser known as variant 13: advances the state by the
// golden ratio and mixes it.
[[nodiscard]] std::uint64_t splitmix64(std::uint64_t state);

}  // namespace ttrace::reference
