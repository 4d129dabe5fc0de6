// Marks a module boundary inside a `forward`: `x = scope.in(x); ... return scope.out(y);`.
//
// Needed for modules that communicate or compute without parameters (an attention core, a
// column-parallel linear). A leaf module whose last operation uses its own parameter needs none.
// Costs one pointer test where nothing is traced. A scope never adds an autograd node.
#pragma once

#include <ttrace/export.h>

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>

namespace torch::nn {
class Module;
}

namespace ttrace {

// Opens on construction, closes on destruction; lives on the stack of one thread.
class TTRACE_API Scope {
 public:
  // `module` is a descendant of the module given to Session::attach (or that module itself).
  // `child` names a boundary that is no module of its own: Scope(*this, "core_attention").
  template <class Module>
  explicit Scope(const Module& module, std::string_view child = {})
      : Scope(static_cast<const torch::nn::Module*>(&module), child) {}
  Scope(const torch::nn::Module* module, std::string_view child);
  ~Scope();
  Scope(const Scope&) = delete;  // bound to a position on the scope stack
  Scope& operator=(const Scope&) = delete;

  // Hands the tensor on. Recorded as `input` (and `grad_input`) only where no traced module
  // produced it. `slot` counts the module's inputs from 0.
  [[nodiscard]] at::Tensor in(const at::Tensor& tensor, int slot = 0);
  // Hands the tensor on and records it as `output`, its gradient as `grad_output`.
  [[nodiscard]] at::Tensor out(const at::Tensor& tensor, int slot = 0);

  // Records a scale of a quantised operand, or the history of largest magnitudes that it follows
  // from. Slots: 0 input, 1 weight, 2 gradient of the output (MicrobatchOptions::gradient_scale
  // applies to it), for which a scope is opened within backward. A scale has no dimension, or the
  // dims that `scales` in the annotation file give its slot.
  void scale(const at::Tensor& tensor, int slot);
  void amax_history(const at::Tensor& tensor, int slot);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;  // null where nothing is traced
};

}  // namespace ttrace
