// Marks a module boundary inside a `forward`: `x = scope.in(x); ... return scope.out(y);`.
//
// Needed for modules that communicate or compute without parameters (an attention core, a
// column-parallel linear). A leaf module whose last operation uses its own parameter needs none.
// Costs one pointer test where nothing is traced. A scope never adds an autograd node.
#pragma once

#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ttrace {

// Which logical rows a tensor's rows are, where no annotation can tell: tokens that a router sent
// to an expert, packed sequences. Overrides what the annotation says of dimension `dim`. Where
// samples were permuted (Microbatch::permutation), rows are those of the order before.
struct TTRACE_API Rows {
  std::vector<std::int64_t> index;  // by local row: its logical row; -1: padding
  std::int64_t size = 0;            // number of logical rows, of one micro-batch
  std::size_t dim = 0;
  // Rows that no rank holds are legitimate; reference and candidate must hold the same.
  bool sparse = true;
  // Where rows come from micro-batches of other ranks as well (experts that data-parallel ranks
  // share): by local row its global micro-batch, and all that rows may come from. Every one of
  // those gets a record, be it without rows. Empty: all rows are of the current micro-batch.
  std::vector<std::int64_t> microbatch = {};
  std::vector<std::int64_t> microbatches = {};
};

// The canonical path of a module that is no C++ object, such as one of Python.
struct TTRACE_API ModulePath {
  std::string path;
};

// Opens on construction, closes on destruction; lives on the stack of one thread.
class TTRACE_API Scope {
 public:
  // `module` is a descendant of the module given to Session::attach (or that module itself).
  // `child` names a boundary that is no module of its own: Scope(*this, "core_attention").
  template <class Module>
  explicit Scope(const Module& module, std::string_view child = {})
      : Scope(static_cast<const torch::nn::Module*>(&module), child) {}
  Scope(const torch::nn::Module* module, std::string_view child);
  explicit Scope(ModulePath module);
  ~Scope();
  Scope(const Scope&) = delete;  // bound to a position on the scope stack
  Scope& operator=(const Scope&) = delete;

  // Hands the tensor on; in a forced pass a copy with the candidate's values. Recorded as `input`
  // (and `grad_input`) only where no traced module produced it. `slot` counts the module's inputs
  // from 0.
  [[nodiscard]] at::Tensor in(const at::Tensor& tensor, int slot = 0);
  // The same, recorded as `output`, its gradient as `grad_output`.
  [[nodiscard]] at::Tensor out(const at::Tensor& tensor, int slot = 0);
  // The same for a tensor whose rows lie where `rows` say, and so do its gradient's.
  [[nodiscard]] at::Tensor in(const at::Tensor& tensor, const Rows& rows, int slot = 0);
  [[nodiscard]] at::Tensor out(const at::Tensor& tensor, const Rows& rows, int slot = 0);
  // For a tensor that only wraps this rank's part, such as a DTensor of Python: records `local`,
  // that part. Returns what to hand to local_gradient() when the wrapper's gradient arrives;
  // kNoGradient where none is expected. Values are not replaced in forced passes, which run on one
  // device.
  static constexpr std::int64_t kNoGradient = -1;
  [[nodiscard]] std::int64_t in_local(const at::Tensor& local, int slot, bool has_gradient);
  [[nodiscard]] std::int64_t out_local(const at::Tensor& local, int slot, bool has_gradient);
  static void local_gradient(std::int64_t expected, const at::Tensor& gradient);

  // Hands a dropout mask on and records it as `mask`: compared exactly.
  [[nodiscard]] at::Tensor mask(const at::Tensor& tensor, int slot = 0);

  // The experts that this module chose for every token: `choices` int64 [..., k], best first, and
  // `margins` [...], by how much the k-th choice beat the next expert in the scores that select.
  // Records both (kind `routing`, slots 0 and 1) and returns the choices to go on with: the given
  // ones, or in a pass that follows another run's routing (TTRACE_CANDIDATE, noise passes) those.
  [[nodiscard]] at::Tensor routing(const at::Tensor& choices, const at::Tensor& margins);
  // Records a scale of a quantised operand, or the history of largest magnitudes that it follows
  // from. Slots: 0 input, 1 weight, 2 gradient of the output (MicrobatchOptions::gradient_scale
  // applies to it), for which a scope is opened within backward. A scale has no dimension, or the
  // dims that `scales` in the annotation file give its slot.
  void scale(const at::Tensor& tensor, int slot);
  void amax_history(const at::Tensor& tensor, int slot);
  // Records what the product consumes of a quantised operand: codes times scale, in the tensor's
  // own type. Slots as above; called after scale(), with the tensor that goes into the product
  // (where rows are gathered, the gathered one). Its dims are those that `operands` in the
  // annotation file give its slot.
  void operand(const at::Tensor& values, int slot);

 private:
  at::Tensor input(const at::Tensor& tensor, int slot, const Rows* rows);
  at::Tensor output(const at::Tensor& tensor, int slot, const Rows* rows);
  std::int64_t local(Kind kind, const at::Tensor& tensor, int slot, bool has_gradient);

  struct Impl;
  std::unique_ptr<Impl> impl_;  // null where nothing is traced
};

}  // namespace ttrace
