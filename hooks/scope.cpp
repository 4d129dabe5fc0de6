#include "capture.h"
#include "scope_stack.h"

#include <ttrace/scope.h>

#include <utility>

namespace ttrace {
namespace {

thread_local const OpenScope* innermost = nullptr;

}  // namespace

const OpenScope* innermost_scope() {
  return innermost;
}

struct Scope::Impl {
  OpenScope open;
};

Scope::Scope(const torch::nn::Module* module, std::string_view child) {
  Capture* capture = active_capture();
  if (capture == nullptr) {
    return;
  }
  capture->scope_event();
  capture->contain([&] {
    impl_ = std::make_unique<Impl>(Impl{capture->scope(module, child)});
    impl_->open.parent = innermost;
    innermost = &impl_->open;
  });
}

Scope::~Scope() {
  if (impl_ == nullptr) {
    return;
  }
  if (Capture* capture = active_capture()) {
    capture->scope_event();
  }
  innermost = impl_->open.parent;
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

at::Tensor Scope::routing(const at::Tensor& choices, const at::Tensor& margins) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      return capture->scope_routing(impl_->open.path, choices, margins);
    }
  }
  return choices;
}

at::Tensor Scope::input(const at::Tensor& tensor, int slot, const Rows* rows) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      return capture->scope_input(impl_->open.path, slot, tensor, rows);
    }
  }
  return tensor;
}

at::Tensor Scope::output(const at::Tensor& tensor, int slot, const Rows* rows) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      return capture->scope_output(impl_->open.path, slot, tensor, rows);
    }
  }
  return tensor;
}

at::Tensor Scope::mask(const at::Tensor& tensor, int slot) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      capture->scope_state({Kind::kMask, impl_->open.path, slot}, tensor);
    }
  }
  return tensor;
}

void Scope::scale(const at::Tensor& tensor, int slot) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      capture->scope_state({Kind::kScale, impl_->open.path, slot}, tensor);
    }
  }
}

void Scope::operand(const at::Tensor& values, int slot) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      capture->scope_state({Kind::kOperand, impl_->open.path, slot}, values);
    }
  }
}

void Scope::amax_history(const at::Tensor& tensor, int slot) {
  if (impl_ != nullptr) {
    if (Capture* capture = active_capture()) {
      capture->scope_state({Kind::kAmaxHistory, impl_->open.path, slot}, tensor);
    }
  }
}

}  // namespace ttrace
