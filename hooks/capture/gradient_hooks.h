// Hooks on the gradients of tensors, next to those that the program has.
//
// A leaf keeps the hooks that C++ and Python registered in one place, and the first hook of either
// language removes those of the other: torch's register_hook() on a parameter would disable the
// program's own hooks, and later ones would remove it (FSDP2 has hooks on everything that a block
// returns). So we add a leaf's hook both to that place, without disturbing it, and to the node that
// accumulates the gradient. The one that is called first counts. Only the first is called if the
// program asks for gradients without accumulating them (torch.autograd.grad); the second is never
// lost.
//
// Thread-safety: one thread at a time; hooks may be called from other threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace ttrace {

class GradientHooks {
 public:
  // Gets a gradient, and returns the one to continue with; undefined: the given one.
  using Hook = std::function<at::Tensor(const at::Tensor&)>;

  GradientHooks();
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  // `tensor` requires a gradient. That of a leaf is kept alive until remove_from_leaves().
  void add(const at::Tensor& tensor, Hook hook);
  // Other hooks go with their tensors. REQUIRES: no backward runs.
  void remove_from_leaves();

 private:
  struct OnLeaf;
  std::vector<OnLeaf> on_leaves_;
};

}  // namespace ttrace
