// Samples from a text file. A byte is a token; which bytes a sample has follows from (seed, step,
// micro-batch, sample) by integer arithmetic, so that any program reproduces them.
//
// Thread-safety: const after construction.
#pragma once

#include "config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace ttrace::reference {

struct Samples {
  at::Tensor tokens;  // [B, S] i64: what the model sees
  at::Tensor labels;  // [B, S] i64: what it is to predict, the token after each
};

class ByteCorpus {
 public:
  // Reads the whole file. Throws UsageError where it cannot be read or is too short for a sample.
  ByteCorpus(const DataConfig& data, const ModelConfig& model);

  // tokens[b] = (V - 1), byte[o], ..., byte[o + S - 2]; labels[b] = byte[o], ..., byte[o + S - 1]
  // with o = splitmix64(((seed c + step) c + microbatch) c + b) mod (bytes - S), c = 1000003.
  [[nodiscard]] Samples samples(std::int64_t step, std::int64_t microbatch) const;

  // XXH3-64 of the file, 16 hexadecimal digits.
  [[nodiscard]] std::string digest() const;

 private:
  [[nodiscard]] std::uint64_t offset(std::int64_t step,
                                     std::int64_t microbatch,
                                     std::int64_t sample) const;

  std::string bytes_;
  std::uint64_t seed_;
  std::int64_t samples_;   // B
  std::int64_t sequence_;  // S
  std::int64_t begin_;     // token that opens each sample: V - 1
};

// One step of the generator by Steele, Lea and Flood ("Fast splittable pseudorandom number
// generators", OOPSLA 2014) with the finaliser known as variant 13: advances the state by the
// golden ratio and mixes it.
[[nodiscard]] std::uint64_t splitmix64(std::uint64_t state);

}  // namespace ttrace::reference
