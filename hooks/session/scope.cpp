#include "hooks/base/scope_stack.h"
#include "hooks/capture/capture.h"

#include <ttrace/scope.h>

#include <utility>

namespace ttrace {

struct Scope::Impl {
  OpenScope open;
  int addends = 1;  // of what in() or out() records next

  // Null if nothing is traced. `path_of(capture)`: of the module.
  template <class PathOf>
  static std::unique_ptr<Impl> of(const PathOf& path_of) {
    std::unique_ptr<Impl> result;
    Capture* capture = active_capture();
    if (capture != nullptr) {
      capture->scope_event();
      capture->contain([&] {
        result = std::make_unique<Impl>(Impl{capture->scope(path_of(*capture))});
        result->open.parent = innermost_scope();
        set_innermost_scope(&result->open);
      });
    }
    return result;
  }
};

Scope::Scope(const torch::nn::Module* module,
             std::string_view child,
             const std::source_location& where)
    : impl_(Impl::of([&](const Capture& capture) { return capture.path_of(module, child); })) {
  if (Capture* const capture = tracing()) {
    capture->scope_opened_at(impl_->open.path, where);
  }
}

Scope::Scope(ModulePath module)
    : impl_(Impl::of([&](const Capture&) { return std::move(module.path); })) {}

Scope::~Scope() {
  if (impl_ == nullptr || impl_->open.is_stale()) {
    return;
  }
  if (Capture* capture = active_capture()) {
    capture->scope_event();
  }
  set_innermost_scope(impl_->open.parent);
}

Scope& Scope::summed(int ranks) {
  if (impl_ != nullptr) {
    impl_->addends = ranks;
  }
  return *this;
}

void Scope::summed_gradient(const std::string& parameter, int ranks) {
  if (Capture* const capture = tracing()) {
    capture->scope_summed_gradient(impl_->open.path + "." + parameter, ranks);
  }
}

at::Tensor Scope::in(const at::Tensor& tensor, int slot) {
  return input(tensor, slot, nullptr);
}

at::Tensor Scope::in(const at::Tensor& tensor, const Rows& rows, int slot) {
  return input(tensor, slot, &rows);
}

at::Tensor Scope::out(const at::Tensor& tensor, int slot) {
  return output(tensor, slot, nullptr);
}

at::Tensor Scope::out(const at::Tensor& tensor, const Rows& rows, int slot) {
  return output(tensor, slot, &rows);
}

Scope::Local Scope::in_local(const at::Tensor& local, int slot, bool has_gradient) {
  return this->local(Kind::kInput, local, slot, has_gradient);
}

Scope::Local Scope::out_local(const at::Tensor& local, int slot, bool has_gradient) {
  return this->local(Kind::kOutput, local, slot, has_gradient);
}

at::Tensor Scope::local_gradient(std::int64_t expected, const at::Tensor& gradient) {
  Capture* const capture = active_capture();
  return capture == nullptr ? gradient : capture->local_gradient(expected, gradient);
}

static_assert(Scope::kNoGradient == kNoLocalGradient);

Scope::Local Scope::local(Kind kind, const at::Tensor& tensor, int slot, bool has_gradient) {
  Capture* const capture = tracing();
  Local result{tensor};
  if (capture != nullptr) {
    result.gradient =
        capture->scope_local(kind, impl_->open.path, slot, result.value, has_gradient);
  }
  return result;
}

at::Tensor Scope::routing(const at::Tensor& choices, const at::Tensor& margins) {
  Capture* const capture = tracing();
  return capture == nullptr ? choices : capture->scope_routing(impl_->open.path, choices, margins);
}

at::Tensor Scope::input(const at::Tensor& tensor, int slot, const Rows* rows) {
  Capture* const capture = tracing();
  return capture == nullptr
             ? tensor
             : capture->scope_input(
                   impl_->open.path, slot, tensor, rows, std::exchange(impl_->addends, 1));
}

at::Tensor Scope::output(const at::Tensor& tensor, int slot, const Rows* rows) {
  Capture* const capture = tracing();
  return capture == nullptr
             ? tensor
             : capture->scope_output(
                   impl_->open.path, slot, tensor, rows, std::exchange(impl_->addends, 1));
}

at::Tensor Scope::mask(const at::Tensor& tensor, int slot) {
  Capture* const capture = tracing();
  return capture == nullptr ? tensor : capture->scope_draw(impl_->open.path, slot, tensor);
}

void Scope::scale(const at::Tensor& tensor, int slot) {
  state(Kind::kScale, tensor, slot);
}

void Scope::operand(const at::Tensor& values, int slot) {
  state(Kind::kOperand, values, slot);
}

void Scope::amax_history(const at::Tensor& tensor, int slot) {
  state(Kind::kAmaxHistory, tensor, slot);
}

Capture* Scope::tracing() const {
  return impl_ == nullptr || impl_->open.is_stale() ? nullptr : active_capture();
}

void Scope::state(Kind kind, const at::Tensor& tensor, int slot) {
  if (Capture* const capture = tracing()) {
    capture->scope_state({kind, impl_->open.path, slot}, tensor);
  }
}

}  // namespace ttrace
