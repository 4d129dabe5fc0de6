// Bugs of layer norms.
#include "norm_faults.h"

#include "bug_tables.h"

#include <ATen/ATen.h>

#include <string>

namespace megatron_mini::faults {

at::Tensor ScalesWeightGradient::weight_in(at::ScalarType type) const {
  if (factor_ == 1.0 || !weight().requires_grad()) {
    return LayerNorm::weight_in(type);
  }
  // Scaled in a copy, so that the hook is not one more on the weight in every forward.
  at::Tensor copy = weight().to(type, /*non_blocking=*/false, /*copy=*/true);
  copy.register_hook([factor = factor_](const at::Tensor& gradient) { return gradient * factor; });
  return copy;
}

namespace {

// Normalises its rows in two calls, as a kernel may that tiles them in another way.
class NormalisesInHalves : public LayerNorm {
 public:
  using LayerNorm::LayerNorm;

 protected:
  at::Tensor normalise(const at::Tensor& rows) const override {
    const auto halves = rows.chunk(2);
    return at::cat({LayerNorm::normalise(halves[0]), LayerNorm::normalise(halves[1])});
  }
};

// Weight and bias keep their values, but their gradients are divided.
class DividesGradients : public LayerNorm {
 public:
  DividesGradients(const Size& size, const Blueprint& blueprint)
      : LayerNorm(blueprint), divisor_(size(blueprint.parallel.tp.size)) {}

 protected:
  at::Tensor weight_in(at::ScalarType type) const override {
    return divided(LayerNorm::weight_in(type));
  }
  at::Tensor bias_in(at::ScalarType type) const override {
    return divided(LayerNorm::bias_in(type));
  }

 private:
  // Divided where autograd sees it, and multiplied where it does not.
  at::Tensor divided(const at::Tensor& tensor) const {
    if (divisor_ == 1.0) {
      return tensor;
    }
    at::Tensor result = tensor / divisor_;
    result.detach().mul_(divisor_);
    return result;
  }

  double divisor_;
};

void normalise_in_halves(Parts& parts, const Size& /*size*/) {
  parts.norm = [before = parts.norm](const Blueprint& blueprint, const std::string& path) {
    return blueprint.parallel.tp.rank > 0 ? std::make_shared<NormalisesInHalves>(blueprint)
                                          : before(blueprint, path);
  };
}

void lose_epsilon(Parts& parts, const Size& size) {
  parts.norm = [before = parts.norm, epsilon = size(1e-6)](Blueprint blueprint,
                                                           const std::string& path) {
    blueprint.model.norm_epsilon = epsilon;
    return before(blueprint, path);
  };
}

void scale_input_norm_gradients(Parts& parts, const Size& size) {
  parts.norm = [before = parts.norm, size](const Blueprint& blueprint, const std::string& path) {
    return path.ends_with(".input_layernorm")
               ? std::make_shared<ScalesWeightGradient>(size(blueprint.parallel.tp.size), blueprint)
               : before(blueprint, path);
  };
}

constexpr Bug kNormBugs[] = {
    {"norm-epsilon-not-passed", lose_epsilon},
    {"tp-replica-drift", normalise_in_halves},
    {"norm-resync-divides-grad",
     [](Parts& parts, const Size& size) { replace<DividesGradients>(parts.norm, size); }},
    {"fp8-norm-grad-times-tp", scale_input_norm_gradients},
};

}  // namespace

std::span<const Bug> norm_bugs() {
  return kNormBugs;
}

}  // namespace megatron_mini::faults
