#include "text_data.h"

#include <ttrace/error.h>

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

namespace megatron_mini {

namespace {

// Source: the finalizer of Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
// (2014), with the constants of variant 13.
std::uint64_t splitmix64(std::uint64_t state) {
  std::uint64_t z = state + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

constexpr std::uint64_t kFactor = 1000003;

std::uint64_t state_of(const SampleKey& key) {
  std::uint64_t state = key.seed;
  for (const std::int64_t part : {key.step, key.microbatch, key.sample}) {
    state = state * kFactor + static_cast<std::uint64_t>(part);
  }
  return state;
}

// The `number`-th of the sample's further draws, in [0, choices).
std::int64_t draw(const SampleKey& key, std::uint64_t number, std::int64_t choices) {
  return static_cast<std::int64_t>(splitmix64(state_of(key) * kFactor + number) %
                                   static_cast<std::uint64_t>(choices));
}

}  // namespace

TextData::TextData(std::string bytes, std::int64_t sequence, std::int64_t vocabulary)
    : bytes_(std::move(bytes)), sequence_(sequence), vocabulary_(vocabulary) {}

TextData TextData::load(const std::string& file, std::int64_t sequence, std::int64_t vocabulary) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  TTRACE_CHECK(in.good() || in.eof(), UsageError, "cannot read text ", file);
  TTRACE_CHECK(std::ssize(bytes) > sequence,
               UsageError,
               file,
               " has ",
               bytes.size(),
               " bytes, which must be more than the sequence length ",
               sequence);
  const auto largest = static_cast<unsigned char>(*std::max_element(
      bytes.begin(), bytes.end(), [](unsigned char a, unsigned char b) { return a < b; }));
  TTRACE_CHECK(largest < vocabulary,
               UsageError,
               file,
               " has the byte ",
               int{largest},
               ", which is no token of a vocabulary of ",
               vocabulary);
  return {std::move(bytes), sequence, vocabulary};
}

std::vector<std::int64_t> TextData::sample(const SampleKey& key) const {
  const auto choices = bytes_.size() - static_cast<std::size_t>(sequence_);
  const auto offset = static_cast<std::size_t>(splitmix64(state_of(key)) % choices);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(sequence_) + 1);
  tokens[0] = vocabulary_ - 1;
  for (std::size_t i = 1; i < tokens.size(); ++i) {
    tokens[i] = static_cast<unsigned char>(bytes_[offset + i - 1]);
  }
  return tokens;
}

std::vector<std::int64_t> TextData::cu_seqlens(const SampleKey& key) const {
  constexpr std::int64_t kShortest = 2;
  std::vector<std::int64_t> result = {0};
  for (std::uint64_t number = 1; result.back() < sequence_; ++number) {
    const auto end = result.back() + kShortest + draw(key, number, sequence_ / 2 - 1);
    result.push_back(end > sequence_ - kShortest ? sequence_ : end);
  }
  return result;
}

std::int64_t TextData::prompt_length(const SampleKey& key) const {
  return draw(key, 0, sequence_ / 2 + 1);
}

std::string TextData::digest() const {
  char text[17];
  std::snprintf(text,
                sizeof(text),
                "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes_.data(), bytes_.size())));
  return text;
}

}  // namespace megatron_mini
