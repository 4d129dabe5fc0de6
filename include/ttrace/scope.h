// Marks a module boundary inside a `forward`.
//
// clang-format off
//   at::Tensor forward(const at::Tensor& input) {
//     ttrace::Scope scope(*this, "core_attention");
//     const at::Tensor x = scope.in(input);
//     return scope.out(x.tanh());
//   }
// clang-format on
//
// Needed for modules that communicate, or that compute without parameters of their own: an
// attention core, a column-parallel linear. A leaf module whose last operation uses its own
// parameter needs none, because TTrace finds its output by the parameters that its operators take.
//
// A scope adds no node to the autograd graph. If nothing is traced it costs one pointer test.
//
// Errors: no function of a Scope throws. In a traced step the first error stops the tracing, see
// session.h.
//
// Thread-safety: a scope belongs to the thread that opens it.
#pragma once

#include <ttrace/rows.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

namespace torch::nn {
class Module;
}

namespace ttrace {

class Capture;  // private: what a traced step records

// The canonical path of a module that is no C++ object, such as one of Python.
struct ModulePath {
  std::string path;
};

// Opens on construction and closes on destruction. REQUIRES: scopes of a thread close in the
// opposite order of opening, as local variables do; a step is not ended inside a scope.
class Scope {
 public:
  // `module` is the module given to Session::attach() or one of its descendants; any other one is
  // an error. `child` names a boundary that is not a module: Scope(*this, "core_attention").
  // A report names the line where the scope of a wrong module is opened.
  template <class Module>
  explicit Scope(const Module& module,
                 std::string_view child = {},
                 const std::source_location& where = std::source_location::current())
      : Scope(static_cast<const torch::nn::Module*>(&module), child, where) {}
  Scope(const torch::nn::Module* module,
        std::string_view child,
        const std::source_location& where = std::source_location::current());
  explicit Scope(ModulePath module);
  ~Scope();
  Scope(const Scope&) = delete;  // bound to a position on the scope stack
  Scope& operator=(const Scope&) = delete;

  // Record a tensor that goes into the module or comes out of it. `slot` counts the module's inputs
  // or outputs from 0.
  //
  // in(): recorded as `input`, its gradient as `grad_input`, unless a traced module has returned
  // this very tensor; then TTrace records an edge between the two modules.
  // out(): recorded as `output`, its gradient as `grad_output`.
  //
  // REQUIRES: the program uses the returned tensor from here on. It is the given one, except in
  // passes that replace values (forced passes, TTRACE_INPUTS=dyadic), where it is a copy with other
  // values, and in noise passes where no operator of torch's dispatcher made the values: it is then
  // a copy with noise.
  [[nodiscard]] at::Tensor in(const at::Tensor& tensor, int slot = 0);
  [[nodiscard]] at::Tensor out(const at::Tensor& tensor, int slot = 0);
  // The same for a tensor whose rows, and those of its gradient, lie where `rows` says.
  [[nodiscard]] at::Tensor in(const at::Tensor& tensor, const Rows& rows, int slot = 0);
  [[nodiscard]] at::Tensor out(const at::Tensor& tensor, const Rows& rows, int slot = 0);

  // Declares that the next out() records a sum over `ranks` addends, or that the gradient of the
  // next in() is one. A bound then contains the rounding of such a sum, even if no operator of c10d
  // and no Collective showed it (communication inside of a kernel). TTrace ignores this call if it
  // saw the sum itself. Returns *this; 1: no such sum.
  Scope& summed(int ranks);
  // The same for the gradient of one of the module's parameters, if it follows from such a sum. An
  // example is a norm's weight, if the module sums the gradient of the norm's output.
  void summed_gradient(const std::string& parameter, int ranks);

  // The same for a tensor that only wraps this rank's part, such as a DTensor of Python: they
  // record `local`, that part. REQUIRES: the program wraps the returned `value`, if that is another
  // tensor, and uses this wrapper instead; its gradient flows to the first one. If `has_gradient`,
  // `gradient` is a number. REQUIRES: when the first wrapper's gradient arrives, the program passes
  // that number and the gradient's local part to local_gradient(), once and within the same step,
  // and uses the tensor that it returns. kNoGradient: TTrace expects no gradient.
  static constexpr std::int64_t kNoGradient = -1;
  struct Local {
    at::Tensor value;
    std::int64_t gradient = kNoGradient;
  };
  [[nodiscard]] Local in_local(const at::Tensor& local, int slot, bool has_gradient);
  [[nodiscard]] Local out_local(const at::Tensor& local, int slot, bool has_gradient);
  [[nodiscard]] static at::Tensor local_gradient(std::int64_t expected, const at::Tensor& gradient);

  // Records a dropout mask, or other random numbers that the program makes without an operator of
  // torch (kind `draw`). REQUIRES: the program uses the returned numbers: its own, or those of the
  // run that this pass follows (TTRACE_CANDIDATE, noise passes).
  [[nodiscard]] at::Tensor mask(const at::Tensor& tensor, int slot = 0);

  // Records the experts that this module chose for every token: `choices` int64 [..., k], best
  // first, and `margins` [...], by how much the k-th choice beat the next expert in the scores that
  // select (kind `routing`, slots 0 and 1). REQUIRES: the program uses the returned choices: its
  // own, or those of the run whose routing this pass follows (TTRACE_CANDIDATE, noise passes).
  [[nodiscard]] at::Tensor routing(const at::Tensor& choices, const at::Tensor& margins);

  // Record a scale of a quantised operand, and the history of largest magnitudes that it follows
  // from. Slots: 0 is the input, 1 the weight, 2 the gradient of the output; the program opens a
  // scope within backward for the last one, and MicrobatchOptions::gradient_scale applies to it. A
  // scale has no dimension, or those that `scales` in the annotation file gives its slot.
  void scale(const at::Tensor& tensor, int slot);
  void amax_history(const at::Tensor& tensor, int slot);
  // Records what the product consumes of a quantised operand: codes times scale, in the tensor's
  // own type. Slots are as above. `values` is the tensor that goes into the product; where rows are
  // gathered, it is the gathered one. REQUIRES: called after scale() of the same slot. Its
  // dimensions are those that `operands` in the annotation file gives its slot.
  void operand(const at::Tensor& values, int slot);

 private:
  // Null where nothing is traced.
  [[nodiscard]] Capture* tracing() const;
  at::Tensor input(const at::Tensor& tensor, int slot, const Rows* rows);
  at::Tensor output(const at::Tensor& tensor, int slot, const Rows* rows);
  Local local(Kind kind, const at::Tensor& tensor, int slot, bool has_gradient);
  void state(Kind kind, const at::Tensor& tensor, int slot);

  struct Impl;
  std::unique_ptr<Impl> impl_;  // null where nothing is traced
};

}  // namespace ttrace
