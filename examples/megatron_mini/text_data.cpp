#include "text_data.h"

#include "error.h"
#include "splitmix.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

namespace megatron_mini {

namespace {

constexpr std::uint64_t kFactor = 1000003;

std::uint64_t state_of(const SampleKey& key) {
  return microbatch_state(key) * kFactor + static_cast<std::uint64_t>(key.sample);
}

// The `number`-th of the sample's further draws, in [0, choices).
std::int64_t draw(const SampleKey& key, std::uint64_t number, std::int64_t choices) {
  return static_cast<std::int64_t>(splitmix64(state_of(key) * kFactor + number) %
                                   static_cast<std::uint64_t>(choices));
}

}  // namespace

std::uint64_t microbatch_state(const SampleKey& key) {
  return (key.seed * kFactor + static_cast<std::uint64_t>(key.step)) * kFactor +
         static_cast<std::uint64_t>(key.microbatch);
}

TextData::TextData(std::string bytes, std::int64_t sequence, std::int64_t vocabulary)
    : bytes_(std::move(bytes)), sequence_(sequence), vocabulary_(vocabulary) {}

TextData TextData::load(const std::string& file, std::int64_t sequence, std::int64_t vocabulary) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  require<UsageError>(
      in.good() || in.eof(), "cannot read the text; correct data.file, which names ", file);
  require<UsageError>(std::ssize(bytes) > sequence,
                      file,
                      " has ",
                      bytes.size(),
                      " bytes, which must be more than the sequence length ",
                      sequence);
  const auto largest = static_cast<unsigned char>(*std::max_element(
      bytes.begin(), bytes.end(), [](unsigned char a, unsigned char b) { return a < b; }));
  require<UsageError>(largest < vocabulary,
                      file,
                      " has the byte ",
                      int{largest},
                      ", which is not a token of a vocabulary of ",
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
