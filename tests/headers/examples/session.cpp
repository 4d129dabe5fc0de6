#include <ttrace/session.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

void example_of_session(const std::shared_ptr<torch::nn::LinearImpl>& model,
                        torch::optim::SGD& optimizer,
                        const at::Tensor& tokens,
                        const std::vector<ttrace::NamedTensor>& main_gradients,
                        const std::vector<ttrace::OptimizerEntry>& optimizer_entries);

void example_of_session(const std::shared_ptr<torch::nn::LinearImpl>& model,
                        torch::optim::SGD& optimizer,
                        const at::Tensor& tokens,
                        const std::vector<ttrace::NamedTensor>& main_gradients,
                        const std::vector<ttrace::OptimizerEntry>& optimizer_entries) {
  const ttrace::Layout layout;
  const std::int64_t iterations = 2;
  const std::int64_t microbatches = 2;
  const int dp = 1;
  const int dp_rank = 0;
  const double norm = 1.0;
#include "session.inc"
}
