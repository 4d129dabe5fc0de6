#include "data.h"

#include "digest.h"

#include <ttrace/error.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

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
      documents_(data.documents),
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
                 at::empty({samples_, sequence_}, at::kBool),
                 at::arange(sequence_).repeat({samples_, 1}),
                 at::zeros({samples_, sequence_}, at::kLong)};
  auto* token = result.tokens.mutable_data_ptr<std::int64_t>();
  auto* label = result.labels.mutable_data_ptr<std::int64_t>();
  auto* counts = result.counts.mutable_data_ptr<bool>();
  for (std::int64_t b = 0; b < samples_; ++b) {
    const std::uint64_t state = followed_by(followed_by(followed_by(seed_, step), microbatch), b);
    const std::uint64_t start = splitmix64(state) % (bytes_.size() - length);
    const std::uint64_t prompt =
        masked_ == Masked::kPrompt ? splitmix64(followed_by(state, 0)) % (length / 2 + 1) : 0;
    std::int64_t previous = begin_;
    for (std::uint64_t i = 0; i < length; ++i) {
      *token++ = previous;
      previous = static_cast<unsigned char>(bytes_[start + i]);
      *label++ = previous;
      *counts++ = i >= prompt;
    }
    if (documents_ == Documents::kPacked) {
      pack(result, b, state);
    }
  }
  return result;
}

// Cuts sample b into documents.
void ByteCorpus::pack(Samples& samples, std::int64_t b, std::uint64_t state) const {
  const auto choices = static_cast<std::uint64_t>(sequence_ / 2 - 1);
  std::int64_t start = 0;
  for (std::int64_t number = 0; start < sequence_; ++number) {
    auto length =
        2 + static_cast<std::int64_t>(splitmix64(followed_by(state, number + 1)) % choices);
    if (start + length + 2 > sequence_) {
      length = sequence_ - start;
    }
    const auto part = [&](const at::Tensor& tensor) { return tensor[b].narrow(0, start, length); };
    part(samples.tokens)[0].fill_(begin_);
    part(samples.labels)[length - 1].fill_(begin_);
    part(samples.counts)[length - 1].fill_(false);
    part(samples.positions).copy_(at::arange(length));
    part(samples.documents).fill_(number);
    start += length;
  }
}

Samples reordered(const Samples& samples, const at::Tensor& order) {
  return {samples.tokens.index_select(0, order),
          samples.labels.index_select(0, order),
          samples.counts.index_select(0, order),
          samples.positions.index_select(0, order),
          samples.documents.index_select(0, order)};
}

Samples moved_to(c10::Device device, const Samples& samples) {
  return {samples.tokens.to(device),
          samples.labels.to(device),
          samples.counts.to(device),
          samples.positions.to(device),
          samples.documents.to(device)};
}

std::string ByteCorpus::digest() const {
  Digest digest;
  digest.add(bytes_.data(), bytes_.size());
  return digest.text();
}

}  // namespace ttrace::reference
