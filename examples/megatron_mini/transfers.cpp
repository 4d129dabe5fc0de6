#include "transfers.h"

#include <ATen/ATen.h>

#include <utility>

namespace megatron_mini {

namespace {

constexpr int kOutput = 0;
constexpr int kGradient = 1;
constexpr int kSlots = 2;

std::string layer_path(std::int64_t number) {
  return "decoder.layers." + std::to_string(number);
}

}  // namespace

Transfers::Transfers(const Parallel& parallel,
                     std::vector<LayerRange> chunks,
                     std::vector<std::int64_t> shape,
                     const at::TensorOptions& options)
    : parallel_(parallel),
      chunks_(std::move(chunks)),
      shape_(std::move(shape)),
      options_(options) {}

std::int64_t Transfers::tag(int chunk, bool behind, int slot, std::int64_t number) const {
  const std::int64_t virtual_stages = std::int64_t{parallel_.pp.size} * parallel_.chunks;
  const std::int64_t border =
      std::int64_t{chunk} * parallel_.pp.size + parallel_.pp.rank + (behind ? 1 : 0);
  return (number * (virtual_stages + 1) + border) * kSlots + slot;
}

std::string Transfers::layer_before(int chunk) const {
  return layer_path(chunks_.at(static_cast<std::size_t>(chunk)).first - 1);
}

std::string Transfers::last_layer(int chunk) const {
  const LayerRange& layers = chunks_.at(static_cast<std::size_t>(chunk));
  return layer_path(layers.first + layers.count - 1);
}

at::Tensor Transfers::receive_activation(int chunk, const Cargo& cargo) {
  at::Tensor input = at::empty(shape_, options_);
  receive(input, parallel_.pp, previous(), tag(chunk, false, kOutput, cargo.number));
  input.requires_grad_();
  cargo.traced.received(layer_before(chunk), input, kOutput);
  return input;
}

void Transfers::send_activation(int chunk, const Cargo& cargo, const at::Tensor& output) {
  cargo.traced.sent(last_layer(chunk), output, kOutput);
  under_way_.push_back(start_sending(
      output.detach(), parallel_.pp, next(), tag(chunk, true, kOutput, cargo.number)));
}

at::Tensor Transfers::receive_gradient(int chunk, const Cargo& cargo) {
  at::Tensor gradient = at::empty(shape_, options_);
  receive(gradient, parallel_.pp, next(), tag(chunk, true, kGradient, cargo.number));
  cargo.traced.received(last_layer(chunk), gradient, kGradient);
  return gradient;
}

void Transfers::send_gradient(int chunk, const Cargo& cargo, const at::Tensor& gradient) {
  cargo.traced.sent(layer_before(chunk), gradient, kGradient);
  under_way_.push_back(start_sending(
      gradient, parallel_.pp, previous(), tag(chunk, false, kGradient, cargo.number)));
}

void Transfers::finish() {
  for (const auto& wait_until_sent : under_way_) {
    wait_until_sent();
  }
  under_way_.clear();
}

}  // namespace megatron_mini
