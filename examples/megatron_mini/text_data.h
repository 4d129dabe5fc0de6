// Training samples cut out of a text file by integer arithmetic, the same on every layout.
//
// Thread-safety: immutable after load().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron_mini {

// Which sample of a run.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t step = 0;
  std::int64_t microbatch = 0;  // global
  std::int64_t sample = 0;      // within the micro-batch
};

// What is random in a micro-batch follows from it: (seed c + step) c + microbatch, c = 1000003.
[[nodiscard]] std::uint64_t microbatch_state(const SampleKey& key);

class TextData {
 public:
  // Throws UsageError where the file is unreadable, no longer than one sequence, or has a
  // byte that is no token of the vocabulary.
  static TextData load(const std::string& file, std::int64_t sequence, std::int64_t vocabulary);

  // `sequence` + 1 numbers: the beginning token (vocabulary - 1), then consecutive bytes. Elements
  // [0, sequence) are the inputs, [1, sequence + 1) the labels.
  [[nodiscard]] std::vector<std::int64_t> sample(const SampleKey& key) const;

  // Where packed documents begin and, last, where the sample ends: 0, ..., sequence. A document has
  // 2 tokens or more. Requires: sequence is at least 4.
  [[nodiscard]] std::vector<std::int64_t> cu_seqlens(const SampleKey& key) const;

  // How many of a sample's first tokens are a prompt, which is not to be learnt: up to half of
  // them.
  [[nodiscard]] std::int64_t prompt_length(const SampleKey& key) const;

  // XXH3-64 of the file's bytes, 16 hexadecimal digits.
  [[nodiscard]] std::string digest() const;

 private:
  TextData(std::string bytes, std::int64_t sequence, std::int64_t vocabulary);
  std::string bytes_;
  std::int64_t sequence_;
  std::int64_t vocabulary_;
};

}  // namespace megatron_mini
