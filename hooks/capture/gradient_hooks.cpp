#include "hooks/capture/gradient_hooks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <atomic>
#include <utility>

namespace ttrace {
namespace {

using torch::autograd::FunctionPreHook;
using torch::autograd::variable_list;

// What the two hooks of a leaf share.
struct Shared {
  GradientHooks::Hook hook;
  std::atomic<int> called = 0;  // for gradients that the node has not got yet
};

class LeafHook : public FunctionPreHook {
 public:
  explicit LeafHook(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  [[nodiscard]] bool belongs_to(const void* shared) const { return shared_.get() == shared; }

 protected:
  [[nodiscard]] std::atomic<int>& called() { return shared_->called; }
  [[nodiscard]] variable_list handed_on(const variable_list& gradients) {
    at::Tensor changed = shared_->hook(gradients.front());
    return changed.defined() ? variable_list{std::move(changed)} : gradients;
  }

 private:
  std::shared_ptr<Shared> shared_;
};

class TensorHook final : public LeafHook {
 public:
  using LeafHook::LeafHook;
  variable_list operator()(const variable_list& gradients) override {
    ++called();
    return handed_on(gradients);
  }
};

class NodeHook final : public LeafHook {
 public:
  using LeafHook::LeafHook;
  variable_list operator()(const variable_list& gradients) override {
    if (called() > 0) {
      --called();
      return gradients;
    }
    return handed_on(gradients);
  }
};

void remove(const void* shared, std::vector<std::unique_ptr<FunctionPreHook>>& hooks) {
  std::erase_if(hooks, [&](const std::unique_ptr<FunctionPreHook>& hook) {
    const auto* const own = dynamic_cast<const LeafHook*>(hook.get());
    return own != nullptr && own->belongs_to(shared);
  });
}

}  // namespace

struct GradientHooks::OnLeaf {
  at::Tensor leaf;
  // The leaf itself does not keep its node alive.
  decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>())) node;
  std::shared_ptr<const void> shared;  // by which its hooks are known
};

GradientHooks::GradientHooks() = default;
GradientHooks::~GradientHooks() = default;

void GradientHooks::add(const at::Tensor& tensor, Hook hook) {
  if (!tensor.is_leaf()) {
    static_cast<void>(tensor.register_hook(std::move(hook)));
    return;
  }
  auto shared = std::make_shared<Shared>();
  shared->hook = std::move(hook);
  auto node = torch::autograd::impl::grad_accumulator(tensor);
  node->add_pre_hook(std::make_unique<NodeHook>(shared));
  torch::autograd::impl::hooks(tensor).push_back(std::make_unique<TensorHook>(shared));
  on_leaves_.push_back({tensor, std::move(node), std::move(shared)});
}

void GradientHooks::remove_from_leaves() {
  for (const OnLeaf& entry : on_leaves_) {
    remove(entry.shared.get(), torch::autograd::impl::hooks(entry.leaf));
    remove(entry.shared.get(), entry.node->pre_hooks());
  }
  on_leaves_.clear();
}

}  // namespace ttrace
