// Noise and forced passes of tensors on an accelerator that has kernels: the same bits as without
// them, and values stay where they are.
#include "fake_device/fixture.h"
#include "hooks/fake_kernels.h"
#include "hooks/training.h"
#include "support/tensor_bytes.h"
#include "trace/file/noise_table.h"

#include <gmock/gmock.h>

#include <bit>
#include <optional>

namespace ttrace::testing {
namespace {

using fake::counters;
using fake::device;

class DeviceKernelPasses : public fake::FakeDeviceTest {
 protected:
  // One micro-batch of tensors on the device: floats that round, and integers that do not.
  void run(const Variables& variables, double factor = 1.0) {
    const PassEnvironment environment(with(variables, "TTRACE_ON_ERROR", "raise"));
    auto session = Session::from_environment();
    session.attach(root_, Layout(), Annotations());
    auto step = session.step(0);
    {
      auto microbatch = step.microbatch(0);
      fake::reset();
      microbatch.data("tokens", tokens_);
      microbatch.data("x", x_);
      at::Tensor y;
      {
        Scope scope(root_, "core");
        y = scope.out(scope.in(x_).tanh() * factor);
      }
      {
        Scope scope(root_, "sums");
        output_ = scope.out(scope.in(y).sum(0));
      }
      microbatch.loss(output_.sum(-1));
    }
    step.scalar("done", 1.0);  // where an error inside a hook is thrown
  }

  // The rows of a noise pass with a reference of its own.
  std::vector<NoiseRow> rows(bool kernels) {
    const TemporaryDirectory reference;
    run(reference_pass(reference.path()));
    const std::optional<WithFakeKernels> with_kernels =
        kernels ? std::optional<WithFakeKernels>(std::in_place) : std::nullopt;
    run(noise_pass(reference.path(), 1));
    return read_noise(reference.path()).at(0).rows;
  }

  Captured forced(const std::string& candidate) {
    const TemporaryDirectory directory;
    Variables variables = {{"TTRACE_PASS", "forced"},
                           {"TTRACE_DIR", directory.path()},
                           {"TTRACE_REFERENCE", candidate},
                           {"TTRACE_CANDIDATE", candidate}};
    run(variables);
    return Captured(step0(directory));
  }

  at::Tensor on_device(const at::Tensor& values) { return values.to(device()); }

  Holder root_;
  at::Tensor tokens_ = on_device(at::arange(24).reshape({4, 6}));
  at::Tensor x_ = on_device(random_tensor({3, 5, 700}).to(at::kBFloat16));
  at::Tensor output_;
};

void expect_same_row(const NoiseRow& left, const NoiseRow& right) {
  SCOPED_TRACE(to_string(left.id));
  EXPECT_EQ(to_string(left.id), to_string(right.id));
  expect_same_bits(left.sum_squared, right.sum_squared, "sum_squared");
  expect_same_bits(left.max_abs, right.max_abs, "max_abs");
  EXPECT_EQ(left.nonfinite, right.nonfinite);
  expect_same_bits(left.along_reference.value(), right.along_reference.value(), "along_reference");
  ASSERT_EQ(left.slices.size(), right.slices.size());
  for (std::size_t i = 0; i < left.slices.size(); ++i) {
    expect_same_bits(left.slices[i], right.slices[i], "a slice");
  }
}

TEST_F(DeviceKernelPasses, NoiseTableIsTheOneOfTheHost) {
  const std::vector<NoiseRow> expected = rows(false);
  const std::vector<NoiseRow> actual = rows(true);
  ASSERT_EQ(actual.size(), expected.size());
  int moved = 0;
  int sliced = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expect_same_row(actual[i], expected[i]);
    moved += expected[i].sum_squared > 0.0 ? 1 : 0;
    sliced += expected[i].slices.empty() ? 0 : 1;
  }
  EXPECT_GE(moved, 2);
  EXPECT_GE(sliced, 1);
  EXPECT_LT(moved, static_cast<int>(expected.size()));  // data is equal
}

TEST_F(DeviceKernelPasses, NoiseMovesWhatOperatorsReturnAsOnTheCpuAndWhereItIs) {
  const TemporaryDirectory reference;
  run(reference_pass(reference.path()));
  const auto noisy = [&](const at::Tensor& x) {
    const PassEnvironment environment(noise_pass(reference.path(), 1));
    auto session = Session::from_environment();
    session.attach(root_, Layout(), Annotations());
    auto step = session.step(0);
    const auto microbatch = step.microbatch(0);
    fake::reset();
    const at::Tensor rounded = x * 3;
    const at::Tensor turned = x.transpose(0, 2) * 3;       // dense, but not in row-major order
    const at::Tensor gaps = rounded.select(1, 2).mul_(3);  // a view
    return std::vector<at::Tensor>{rounded, turned, gaps};
  };
  const std::vector<at::Tensor> expected = noisy(x_.to(at::kCPU));
  const WithFakeKernels kernels;
  const std::vector<at::Tensor> moved = noisy(x_);
  EXPECT_EQ(counters().read_copies, 0U);
  EXPECT_EQ(counters().write_copies, 0U);
  EXPECT_EQ(counters().device_waits + counters().stream_waits, 0U);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    EXPECT_TRUE(fake::same_bits(moved[i], expected[i])) << i;
    EXPECT_FALSE(at::equal(expected[i], x_.to(at::kCPU) * 3));
  }
}

// Both ways of the copies that comparing on the host needs: every value to the host, and none back.
TEST_F(DeviceKernelPasses, NoValueOfANoisePassGoesToTheHost) {
  const TemporaryDirectory reference;
  run(reference_pass(reference.path()));
  const WithFakeKernels kernels;
  run(noise_pass(reference.path(), 1));
  EXPECT_EQ(counters().read_copies, 0U);
  // Of the reference, only what noise has moved.
  const auto size = static_cast<std::size_t>(x_.nbytes());
  EXPECT_GE(counters().write_bytes, size);
  EXPECT_LT(counters().write_bytes, 3 * size);
  EXPECT_EQ(counters().device_waits, 0U);
}

TEST_F(DeviceKernelPasses, ForcedValuesThatAreThereAlreadyAreNotWritten) {
  const TemporaryDirectory candidate;
  run(with(candidate_pass(candidate.path(), ""), "TTRACE_START", "own"));
  const at::Tensor expected = output_.to(at::kCPU);
  forced(candidate.path());
  EXPECT_GT(counters().write_copies, 0U);
  const WithFakeKernels kernels;
  forced(candidate.path());
  EXPECT_EQ(counters().write_copies, 0U);
  EXPECT_TRUE(fake::same_bits(output_, expected));
}

TEST_F(DeviceKernelPasses, ForcedValuesThatDifferAreWritten) {
  const TemporaryDirectory candidate;
  run(with(candidate_pass(candidate.path(), ""), "TTRACE_START", "own"), 1.25);
  const at::Tensor expected = output_.to(at::kCPU);
  const WithFakeKernels kernels;
  const Captured captured = forced(candidate.path());
  EXPECT_GT(counters().write_copies, 0U);
  EXPECT_TRUE(fake::same_bits(output_, expected));
  EXPECT_TRUE(fake::same_bits(captured.tensor("s0/m0/output/core/0"), x_.to(at::kCPU).tanh()));
}

TEST(CudaKernelLibrary, ThatIsMissingIsReportedOnce) {
  const PassEnvironment environment(
      Variables{{"LIBTTRACE_CUDA", "/nonexistent/libttrace_cuda.so"}});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(kernels_of({c10::DeviceType::CUDA, 0}), nullptr);
  EXPECT_EQ(kernels_of({c10::DeviceType::CUDA, 1}), nullptr);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, ::testing::HasSubstr("the library of CUDA kernels cannot be opened"));
  EXPECT_THAT(log, ::testing::HasSubstr("/nonexistent/libttrace_cuda.so"));
  EXPECT_EQ(log.find("cannot be opened"), log.rfind("cannot be opened"));
}

}  // namespace
}  // namespace ttrace::testing
