// Tensors that lie on an accelerator, whose work goes on while the host does something else.
#include "hooks/lazy_device.h"
#include "hooks/training.h"

#include <torch/nn/modules/linear.h>

namespace ttrace::testing {
namespace {

at::Tensor on_device(const at::Tensor& values) {
  at::Tensor result = at::empty(values.sizes(), values.options().device(LazyGuard::device()));
  result.copy_(values);
  return result;
}

// Enqueues the overwriting of a device tensor on a stream that is not the current one.
void overwrite_later(const at::Tensor& tensor, const at::Tensor& values) {
  LazyDevice::get().enqueue([tensor, values] {
    std::memcpy(tensor.mutable_data_ptr(), values.const_data_ptr(), values.nbytes());
  });
}

TEST(DeviceTensors, AreCapturedAfterTheWorkThatMakesThem) {
  const at::Tensor old = random_tensor({3, 5}, 1);
  const at::Tensor fresh = random_tensor({3, 5}, 2);
  const at::Tensor gradient = on_device(old);
  Holder root;
  const Captured captured = trace_step(root, [&](Step& step) {
    overwrite_later(gradient, fresh);
    step.gradients_reduced({{"weight", gradient}});
  });
  EXPECT_SAME(captured.tensor("s0/main_grad/weight/0"), fresh);
}

TEST(DeviceTensors, AreFilledAfterTheWorkThatWritesToThem) {
  const at::Tensor parameter = on_device(random_tensor({4, 6}, 3));
  const at::Tensor expected = at::empty({4, 6});
  overwrite_later(parameter, random_tensor({4, 6}, 4));
  fill_parameters({{"weight", parameter}}, Layout(), Annotations(), 1);
  fill_parameters({{"weight", expected}}, Layout(), Annotations(), 1);
  EXPECT_TRUE(LazyDevice::get().idle());
  EXPECT_SAME(parameter.to(at::kCPU), expected);
}

TEST(DeviceTensors, StartFromTheReferencesParameters) {
  const TemporaryDirectory directory;
  const at::Tensor expected = random_tensor({4, 6}, 5);
  const auto attach = [&](Session& session, const at::Tensor& parameter) {
    session.attach({{"weight", parameter}}, {}, Layout(), Annotations());
    return session.load_parameters();
  };
  {
    const PassEnvironment environment(reference_pass(directory / "reference"));
    auto session = Session::from_environment();
    attach(session, on_device(expected));
  }
  const at::Tensor parameter = on_device(random_tensor({4, 6}, 6));
  const PassEnvironment environment(
      candidate_pass(directory / "candidate", directory / "reference"));
  auto session = Session::from_environment();
  EXPECT_EQ(attach(session, parameter), std::vector<std::string>{"weight"});
  EXPECT_SAME(parameter.to(at::kCPU), expected);
}

}  // namespace
}  // namespace ttrace::testing
