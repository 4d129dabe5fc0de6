#include "transfers.h"

#include "error.h"

#include <ATen/ATen.h>

#include <utility>

namespace megatron_mini {

namespace {

constexpr int kOutput = 0;
constexpr int kGradient = 1;

std::string layer_path(std::int64_t number) {
  return "decoder.layers." + std::to_string(number);
}

}  // namespace

Transfers::Transfers(const Parallel& parallel,
                     std::vector<LayerRange> chunks,
                     std::int64_t microbatches,
                     std::vector<std::int64_t> shape,
                     const at::TensorOptions& options)
    : parallel_(parallel), chunks_(std::move(chunks)), shape_(std::move(shape)), options_(options) {
  const Group& pp = parallel_.pp;
  if (pp.size == 1) {
    return;
  }
  for (const Message& message : messages_of(pp.size, parallel_.chunks, microbatches)) {
    if (message.sender(pp.size) == pp.rank || message.receiver(pp.size) == pp.rank) {
      ahead_.push_back(message);
    }
  }
}

std::int64_t Transfers::border(int chunk, bool behind) const {
  return std::int64_t{chunk} * parallel_.pp.size + parallel_.pp.rank + (behind ? 1 : 0);
}

std::string Transfers::layer_before(int chunk) const {
  return layer_path(chunks_.at(static_cast<std::size_t>(chunk)).first - 1);
}

std::string Transfers::last_layer(int chunk) const {
  const LayerRange& layers = chunks_.at(static_cast<std::size_t>(chunk));
  return layer_path(layers.first + layers.count - 1);
}

void Transfers::post(const Message& message) {
  const Group& pp = parallel_.pp;
  require<InternalError>(message.receiver(pp.size) == pp.rank,
                         "a stage has another message to send first, of micro-batch ",
                         message.microbatch,
                         " at border ",
                         message.border);
  Incoming& incoming = incoming_[message];
  incoming.tensor = at::empty(shape_, options_);
  incoming.wait = start_receiving(incoming.tensor, pp, message.sender(pp.size));
}

void Transfers::post_before(const Message& message) {
  while (!ahead_.empty() && ahead_.front() != message) {
    post(ahead_.front());
    ahead_.pop_front();
  }
  require<InternalError>(!ahead_.empty(),
                         "no message of micro-batch ",
                         message.microbatch,
                         " is due at border ",
                         message.border);
  ahead_.pop_front();
}

void Transfers::send(const Message& message, const at::Tensor& tensor) {
  post_before(message);
  under_way_.push_back(start_sending(tensor, parallel_.pp, message.receiver(parallel_.pp.size)));
}

at::Tensor Transfers::receive(const Message& message) {
  if (!incoming_.contains(message)) {
    post_before(message);
    post(message);
  }
  const Incoming incoming = incoming_.extract(message).mapped();
  incoming.wait();
  return incoming.tensor;
}

at::Tensor Transfers::receive_activation(int chunk, const Cargo& cargo) {
  at::Tensor input = receive({Direction::kForward, border(chunk, false), cargo.number});
  input.requires_grad_();
  cargo.traced.received(layer_before(chunk), input, kOutput);
  return input;
}

void Transfers::send_activation(int chunk, const Cargo& cargo, const at::Tensor& output) {
  cargo.traced.sent(last_layer(chunk), output, kOutput);
  send({Direction::kForward, border(chunk, true), cargo.number}, output.detach());
}

at::Tensor Transfers::receive_gradient(int chunk, const Cargo& cargo) {
  at::Tensor gradient = receive({Direction::kBackward, border(chunk, true), cargo.number});
  cargo.traced.received(last_layer(chunk), gradient, kGradient);
  return gradient;
}

void Transfers::send_gradient(int chunk, const Cargo& cargo, const at::Tensor& gradient) {
  cargo.traced.sent(layer_before(chunk), gradient, kGradient);
  send({Direction::kBackward, border(chunk, false), cargo.number}, gradient);
}

void Transfers::finish() {
  for (const auto& wait_until_sent : under_way_) {
    wait_until_sent();
  }
  under_way_.clear();
}

}  // namespace megatron_mini
