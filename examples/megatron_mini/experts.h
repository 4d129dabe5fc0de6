// One expert of a mixture: a feed-forward network whose ffn width is split over etp.
//
// Its rows are tokens that routers sent here, from several micro-batches where data-parallel ranks
// share experts. Communication is the dispatcher's: an expert takes whole rows and returns addends
// over etp, to which the first rank of etp adds the bias.
#pragma once

#include "blueprint.h"

#include <ttrace/scope.h>

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace megatron_mini {

// x W^T (+ b), without communication.
class ExpertLinear : public torch::nn::Module {
 public:
  ExpertLinear(std::int64_t inputs, std::int64_t outputs, c10::Device device);
  // [m, inputs] -> [m, outputs]
  [[nodiscard]] at::Tensor forward(const at::Tensor& rows,
                                   const ttrace::Rows& places,
                                   bool adds_bias);
  [[nodiscard]] const at::Tensor& bias() const { return bias_; }

 private:
  at::Tensor weight_;  // [outputs, inputs]
  at::Tensor bias_;    // [outputs]
};

class Expert : public torch::nn::Module {
 public:
  explicit Expert(const Blueprint& blueprint);
  // [m, h] -> addends [m, h].
  [[nodiscard]] at::Tensor forward(const at::Tensor& rows, const ttrace::Rows& places);
  // [h] of linear_fc2.
  [[nodiscard]] const at::Tensor& output_bias() const { return linear_fc2_->bias(); }

 protected:
  // Whether this rank adds the bias of linear_fc2: the first one of etp does.
  [[nodiscard]] virtual bool adds_output_bias() const { return is_first_; }

 private:
  Activation activation_;
  bool is_first_;  // of etp
  std::shared_ptr<ExpertLinear> linear_fc1_;
  std::shared_ptr<ExpertLinear> linear_fc2_;
};

}  // namespace megatron_mini
