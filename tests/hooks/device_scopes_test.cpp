// Scopes that an exception on autograd's device thread leaves open.
#include "fake_device/fixture.h"
#include "hooks/training.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <thread>

namespace ttrace::testing {
namespace {

using fake::FakeDeviceTest;

// What python/ttrace calls around every module: the TorchScript class `Scopes`.
class PythonScopes {
 public:
  PythonScopes() {
    const at::ClassTypePtr type = torch::getCustomClass("__torch__.torch.classes.ttrace.Scopes");
    object_ = c10::ivalue::Object::create(c10::StrongTypePtr(nullptr, type), 1);
    call("__init__");
  }
  std::int64_t enter(const std::string& path) { return call("enter", path).toInt(); }
  void leave(std::int64_t depth) { call("leave", depth); }

 private:
  template <class... Arguments>
  c10::IValue call(const std::string& method, Arguments... arguments) {
    return object_.toObject()->type()->getMethod(method)({object_, c10::IValue(arguments)...});
  }

  c10::IValue object_;
};

// The model's forward runs again in backward, as activation checkpointing does, and may fail there.
struct Recomputed : Holder {
  Recomputed() {
    fill_all(*this);
    for (const at::Tensor& parameter : parameters()) {
      fake::move_to(parameter, fake::device());
    }
  }
  // A failing forward leaves its scopes open: Python's hooks after a forward do not run then.
  at::Tensor forward(const at::Tensor& x) {
    thread = std::this_thread::get_id();
    const at::Tensor embedded = embedding->forward(x);  // outside of all scopes
    const std::int64_t outer = scopes.enter("block");
    const at::Tensor y = fc1->forward(embedded);
    const std::int64_t inner =
        scopes.enter("block.core");  // a leaf: what runs inside belongs to it
    if (fails) {
      throw std::runtime_error("out of memory");
    }
    const at::Tensor scores = y.tanh();
    scopes.leave(inner);
    const at::Tensor result = fc2->forward(scores);
    scopes.leave(outer);
    return result;
  }

  torch::nn::Linear embedding = add("embedding", torch::nn::Linear(6, 6));
  std::shared_ptr<Holder> block = add("block", std::make_shared<Holder>());
  torch::nn::Linear fc1 = block->add("fc1", torch::nn::Linear(6, 6));
  torch::nn::Linear fc2 = block->add("fc2", torch::nn::Linear(6, 3));
  PythonScopes scopes;
  bool fails = false;
  std::thread::id thread;  // of the last forward
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x,
                            Recomputed* model) {
    context->save_for_backward({x});
    context->saved_data["model"] = reinterpret_cast<std::int64_t>(model);
    return model->forward(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto* const model = reinterpret_cast<Recomputed*>(context->saved_data["model"].toInt());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      y = model->forward(x);
    }
    y.backward(gradients[0]);
    return {x.grad(), at::Tensor()};
  }
};

// Two traced steps; in the first one the forward that runs again throws if `fails`. Returns the
// ids of the second step, in their order.
std::vector<std::string> second_step(bool fails) {
  const TemporaryDirectory directory;
  Variables variables = with(reference_pass(directory.path()), "TTRACE_STEPS", "0:2");
  variables["TTRACE_RING_BYTES"] = "20000";
  const PassEnvironment environment(variables);
  Recomputed model;
  std::thread::id failed_on;
  std::thread::id recomputed_on;
  {
    auto session = Session::from_environment();
    session.attach(model, Layout(), Annotations());
    for (std::int64_t iteration = 0; iteration < 2; ++iteration) {
      auto step = session.step(iteration);
      const auto microbatch = step.microbatch(0);
      const at::Tensor x = random_tensor({4, 6}).to(fake::device()).requires_grad_();
      const at::Tensor y = Checkpoint::apply(x, &model);
      model.fails = fails && iteration == 0;
      if (model.fails) {
        EXPECT_THROW(y.sum().backward(), std::runtime_error);
        failed_on = model.thread;
        model.fails = false;
      } else {
        y.sum().backward();
        recomputed_on = model.thread;
      }
    }
  }
  EXPECT_NE(recomputed_on, std::this_thread::get_id()) << "backward has a thread of its own";
  EXPECT_TRUE(!fails || failed_on == recomputed_on);
  return Captured(directory / "step000001/rank00000.h5").ids_with("s1/m0/");
}

// Symptom: after an exception inside a recomputed forward, the device's thread kept its scopes, and
// in the next step everything that ran there belonged to them: outputs were missing.
TEST_F(FakeDeviceTest, ScopesThatAnExceptionLeavesOpenOnAnotherThreadEndWithTheirStep) {
  const std::vector<std::string> expected = second_step(false);
  EXPECT_THAT(expected, ::testing::Contains("s1/m0/output/embedding/0~"));
  EXPECT_EQ(second_step(true), expected);
}

}  // namespace
}  // namespace ttrace::testing
