#include "data.h"

#include "digest.h"

#include <ttrace/error.h>

#include <ATen/ops/empty.h>

#include <fstream>
#include <sstream>

namespace ttrace::reference {
namespace {

std::string read_file(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  TTRACE_CHECK(in.good(),
               UsageError,
               "cannot read the text ",
               file,
               "; data.file of the configuration is relative to the configuration");
  return std::move(content).str();
}

}  // namespace

std::uint64_t splitmix64(std::uint64_t state) {
  std::uint64_t z = state + 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

ByteCorpus::ByteCorpus(const DataConfig& data, const ModelConfig& model)
    : bytes_(read_file(data.file)),
      seed_(data.seed),
      samples_(data.micro_batch_size),
      sequence_(model.sequence),
      begin_(model.vocabulary - 1) {
  TTRACE_CHECK(static_cast<std::int64_t>(bytes_.size()) > sequence_,
               UsageError,
               data.file,
               " has ",
               bytes_.size(),
               " bytes; a sample of model.sequence ",
               sequence_,
               " needs a longer text");
}

std::uint64_t ByteCorpus::offset(std::int64_t step,
                                 std::int64_t microbatch,
                                 std::int64_t sample) const {
  std::uint64_t state = seed_;
  for (const std::int64_t number : {step, microbatch, sample}) {
    state = state * 1000003U + static_cast<std::uint64_t>(number);
  }
  return splitmix64(state) % (bytes_.size() - static_cast<std::uint64_t>(sequence_));
}

Samples ByteCorpus::samples(std::int64_t step, std::int64_t microbatch) const {
  Samples result{at::empty({samples_, sequence_}, at::kLong),
                 at::empty({samples_, sequence_}, at::kLong)};
  auto* token = result.tokens.mutable_data_ptr<std::int64_t>();
  auto* label = result.labels.mutable_data_ptr<std::int64_t>();
  for (std::int64_t b = 0; b < samples_; ++b) {
    const std::uint64_t start = offset(step, microbatch, b);
    std::int64_t previous = begin_;
    for (std::int64_t i = 0; i < sequence_; ++i) {
      *token++ = previous;
      previous = static_cast<unsigned char>(bytes_[start + static_cast<std::uint64_t>(i)]);
      *label++ = previous;
    }
  }
  return result;
}

std::string ByteCorpus::digest() const {
  Digest digest;
  digest.add(bytes_.data(), bytes_.size());
  return digest.text();
}

}  // namespace ttrace::reference
