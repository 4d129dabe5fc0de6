#include "hooks/session/torch_scopes.h"

#include "hooks/base/scope_stack.h"
#include "hooks/base/simulated_parts.h"
#include "hooks/base/snapshot.h"
#include "hooks/base/tensor_access.h"
#include "hooks/capture/capture.h"

#include <ttrace/error.h>
#include <ttrace/scope.h>

#include <torch/custom_class.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using c10::intrusive_ptr;

std::vector<std::int64_t> integers_of(const at::Tensor& tensor) {
  const Unobserved unobserved;
  const at::Tensor flat = tensor.to(at::kCPU, at::kLong).contiguous();
  const auto* const first = flat.const_data_ptr<std::int64_t>();
  return {first, first + flat.numel()};
}

// Scopes of this step that are open on this thread, innermost last: Python cannot promise to close
// them in order, or at all, where a forward throws.
std::vector<std::unique_ptr<Scope>>& open_scopes() {
  thread_local std::vector<std::unique_ptr<Scope>> scopes;
  thread_local std::uint64_t epoch = 0;
  if (epoch != scope_epoch()) {
    scopes.clear();  // of an earlier step, whose end only the training thread has seen
    epoch = scope_epoch();
  }
  return scopes;
}

// Acts on the scopes of this thread, and does nothing outside of traced steps. These are methods of
// an object without state, because calling one costs less than looking up an operator by name, and
// the observer would see operators.
struct ScopesObject : torch::CustomClassHolder {};

std::int64_t enter(const std::string& path) {
  auto& scopes = open_scopes();
  scopes.push_back(std::make_unique<Scope>(ModulePath{path}));
  return static_cast<std::int64_t>(scopes.size());
}

// Closes the scope that enter() returned `depth` for, and what is open inside it.
void leave(std::int64_t depth) {
  auto& scopes = open_scopes();
  while (static_cast<std::int64_t>(scopes.size()) >= depth && !scopes.empty()) {
    scopes.pop_back();
  }
}

Scope& innermost_open() {
  TTRACE_CHECK(
      !open_scopes().empty(), UsageError, "no scope is open on this thread; open one first");
  return *open_scopes().back();
}

// Rows of a micro-batch, or of several: see Rows.
Rows rows_of(const at::Tensor& index,
             std::int64_t size,
             std::int64_t dim,
             bool sparse,
             const at::Tensor& microbatch,
             std::vector<std::int64_t> microbatches) {
  Rows rows;
  rows.index = integers_of(index);
  rows.size = size;
  rows.dim = static_cast<std::size_t>(dim);
  rows.sparse = sparse;
  rows.microbatch = integers_of(microbatch);
  rows.microbatches = std::move(microbatches);
  return rows;
}

// Methods of the innermost scope, as functions of what TorchScript can pass.
auto pass_to(at::Tensor (Scope::*method)(const at::Tensor&, int)) {
  return [method](const intrusive_ptr<ScopesObject>&, const at::Tensor& tensor, std::int64_t slot) {
    return (innermost_open().*method)(tensor, static_cast<int>(slot));
  };
}

auto pass_rows_to(at::Tensor (Scope::*method)(const at::Tensor&, const Rows&, int),
                  at::Tensor (Scope::*alone)(const at::Tensor&, int)) {
  return [method, alone](const intrusive_ptr<ScopesObject>&,
                         const at::Tensor& tensor,
                         std::int64_t slot,
                         const at::Tensor& index,
                         std::int64_t size,
                         std::int64_t dim,
                         bool sparse,
                         const at::Tensor& microbatch,
                         std::vector<std::int64_t> microbatches) {
    Scope& scope = innermost_open();
    if (unreadable(index) == kInGraph) {  // its values cannot be read, and nothing is recorded
      return (scope.*alone)(tensor, static_cast<int>(slot));
    }
    return (scope.*method)(tensor,
                           rows_of(index, size, dim, sparse, microbatch, std::move(microbatches)),
                           static_cast<int>(slot));
  };
}

auto record_state(void (Scope::*method)(const at::Tensor&, int)) {
  return [method](const intrusive_ptr<ScopesObject>&, const at::Tensor& tensor, std::int64_t slot) {
    (innermost_open().*method)(tensor, static_cast<int>(slot));
  };
}

// The tensor to wrap, and the number to pass with its gradient.
auto record_local(Scope::Local (Scope::*method)(const at::Tensor&, int, bool)) {
  return [method](const intrusive_ptr<ScopesObject>&,
                  const at::Tensor& local,
                  std::int64_t slot,
                  bool has_gradient) {
    const Scope::Local recorded =
        (innermost_open().*method)(local, static_cast<int>(slot), has_gradient);
    return std::tuple(recorded.value, recorded.gradient);
  };
}

void declare(const intrusive_ptr<ScopesObject>& /*scopes*/, std::vector<at::Tensor> parts) {
  declare_parts(std::move(parts));
}

}  // namespace

void close_scopes() {
  leave(0);
}

void register_scopes(torch::Library& library) {
  library.class_<ScopesObject>("Scopes")
      .def(torch::init<>())
      .def("enter",
           [](const intrusive_ptr<ScopesObject>&, const std::string& path) { return enter(path); })
      .def("leave", [](const intrusive_ptr<ScopesObject>&, std::int64_t depth) { leave(depth); })
      .def("input", pass_to(&Scope::in))
      .def("output", pass_to(&Scope::out))
      .def("input_rows", pass_rows_to(&Scope::in, &Scope::in))
      .def("output_rows", pass_rows_to(&Scope::out, &Scope::out))
      .def("input_local", record_local(&Scope::in_local))
      .def("output_local", record_local(&Scope::out_local))
      .def("loss_local",
           [](const intrusive_ptr<ScopesObject>&,
              const at::Tensor& local,
              std::int64_t slot,
              bool has_gradient) {
             at::Tensor value = local;
             Capture* const capture = active_capture();
             const std::int64_t gradient =
                 capture == nullptr
                     ? kNoLocalGradient
                     : capture->scope_local(
                           Kind::kLoss, "loss", static_cast<int>(slot), value, has_gradient);
             return std::tuple(value, gradient);
           })
      .def("local_gradient",
           [](const intrusive_ptr<ScopesObject>&,
              std::int64_t expected,
              const at::Tensor& gradient) { return Scope::local_gradient(expected, gradient); })
      .def("routing",
           [](const intrusive_ptr<ScopesObject>&,
              const at::Tensor& choices,
              const at::Tensor& margins) { return innermost_open().routing(choices, margins); })
      .def("declare_parts", &declare)
      .def("given",
           [](const intrusive_ptr<ScopesObject>&, const at::Tensor& tensor) {
             if (Capture* const capture = active_capture()) {
               capture->given(tensor);
             }
           })
      .def("summed",
           [](const intrusive_ptr<ScopesObject>&, std::int64_t ranks) {
             innermost_open().summed(static_cast<int>(ranks));
           })
      .def(
          "summed_gradient",
          [](const intrusive_ptr<ScopesObject>&, const std::string& parameter, std::int64_t ranks) {
            innermost_open().summed_gradient(parameter, static_cast<int>(ranks));
          })
      .def("scale", record_state(&Scope::scale))
      .def("amax_history", record_state(&Scope::amax_history))
      .def("operand", record_state(&Scope::operand))
      .def("mask",
           [](const intrusive_ptr<ScopesObject>&, const at::Tensor& tensor, std::int64_t slot) {
             return innermost_open().mask(tensor, static_cast<int>(slot));
           });
}

}  // namespace ttrace
