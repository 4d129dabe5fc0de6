#include "main_gradients.h"

#include "precision.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>

namespace ttrace::reference {

MainGradients::MainGradients(std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)) {
  for (const NamedTensor& parameter : parameters_) {
    const at::Tensor values = parameter.tensor.detach();
    gradients_.push_back(
        {parameter.path,
         at::zeros_like(values, values.options().dtype(high_precision(values.scalar_type())))});
  }
}

void MainGradients::zero() {
  for (auto& gradient : gradients_) {
    gradient.tensor.zero_();
  }
}

void MainGradients::add_micro_batch() {
  const c10::AutoGradMode no_grad(false);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    gradients_[i].tensor.add_(gradient);  // an element of a lower type is converted exactly
    gradient.reset();
  }
}

void MainGradients::divide(double divisor) {
  for (auto& gradient : gradients_) {
    gradient.tensor.div_(divisor);
  }
}

double MainGradients::norm() const {
  double squares = 0.0;
  for (const auto& gradient : gradients_) {
    squares += gradient.tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(squares);
}

void MainGradients::clip(double norm, double limit) {
  const double factor = std::min(1.0, limit / (norm + 1e-6));
  for (auto& gradient : gradients_) {
    gradient.tensor.mul_(factor);
  }
}

}  // namespace ttrace::reference
