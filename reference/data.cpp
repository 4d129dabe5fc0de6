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

std::uint64_t followed_by(std::uint64_t state, std::int64_t number) {
  return state * 1000003U + static_cast<std::uint64_t>(number);
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
      masked_(data.masked),
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

Samples ByteCorpus::samples(std::int64_t step, std::int64_t microbatch) const {
  const auto length = static_cast<std::uint64_t>(sequence_);
  Samples result{at::empty({samples_, sequence_}, at::kLong),
                 at::empty({samples_, sequence_}, at::kLong),
                 at::empty({samples_, sequence_}, at::kBool)};
  auto* token = result.tokens.mutable_data_ptr<std::int64_t>();
  auto* label = result.labels.mutable_data_ptr<std::int64_t>();
  auto* counts = result.counts.mutable_data_ptr<bool>();
  for (std::int64_t b = 0; b < samples_; ++b) {
    const std::uint64_t state = followed_by(followed_by(followed_by(seed_, step), microbatch), b);
    const std::uint64_t start = splitmix64(state) % (bytes_.size() - length);
    const std::uint64_t prompt = masked_ == Masked::kPrompt
                                     ? splitmix64(followed_by(state, 0)) % (length / 2 + 1)
                                     : 0;
    std::int64_t previous = begin_;
    for (std::uint64_t i = 0; i < length; ++i) {
      *token++ = previous;
      previous = static_cast<unsigned char>(bytes_[start + i]);
      *label++ = previous;
      *counts++ = i >= prompt;
    }
  }
  return result;
}

Samples reordered(const Samples& samples, const at::Tensor& order) {
  return {samples.tokens.index_select(0, order),
          samples.labels.index_select(0, order),
          samples.counts.index_select(0, order)};
}

std::string ByteCorpus::digest() const {
  Digest digest;
  digest.add(bytes_.data(), bytes_.size());
  return digest.text();
}

}  // namespace ttrace::reference
