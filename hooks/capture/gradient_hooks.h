// Hooks on the gradients of tensors, next to those that the program has.
//
// A leaf keeps the hooks that C++ and that Python registered in one place, and the first one of
// either language throws out all others there: torch's register_hook() on a parameter would disable
// the program's own hooks, and would itself be lost to later ones (FSDP2 has some on everything
// that a block returns). So a leaf's hook is added both to that place, without disturbing it, and
// to the node that accumulates the gradient. Whichever is called first counts. The first alone is
// called where gradients are asked for and not accumulated (torch.autograd.grad), the second is
// never lost.
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
