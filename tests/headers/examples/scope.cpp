#include <ttrace/scope.h>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

struct ModuleOfTheExample : torch::nn::Module {
#include "scope.inc"
};

at::Tensor example_of_scope(ModuleOfTheExample& module);

at::Tensor example_of_scope(ModuleOfTheExample& module) {
  return module.forward(at::ones({2}));
}
