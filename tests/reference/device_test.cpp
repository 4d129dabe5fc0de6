// The reference on an accelerator: every tensor is on its device, and no bit differs from the
// CPU's. There is no GPU here; the device is pretended (fake_device.h). An operator that gets a
// tensor of the CPU beside one of the device throws, and memory that is read too early holds NaN.
#include "reference/device.h"

#include "fake_device/fixture.h"
#include "reference/trainer.h"
#include "small_run.h"
#include "support/temporary_directory.h"

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

namespace ttrace::testing {
namespace {

using reference::Config;
using reference::Precision;
using reference::Trainer;

struct Run {
  std::string name;
  std::function<void(Config&)> change;
};

std::ostream& operator<<(std::ostream& out, const Run& run) {
  return out << run.name;
}

class ReferenceOnDevice : public fake::FakeDeviceTest, public ::testing::WithParamInterface<Run> {
 protected:
  ReferenceOnDevice() : config_(small_config()) {
    config_.data.file = folder_ / "text";
    write_text(config_.data.file);
    GetParam().change(config_);
  }

  // Of two steps.
  [[nodiscard]] std::string digests(c10::Device device) const {
    Trainer trainer(config_, TTRACE_REFERENCE_ANNOTATIONS, device);
    const std::string first = trainer.step(0).digest;
    return first + " " + trainer.step(1).digest;
  }

 private:
  TemporaryDirectory folder_;
  Config config_;
};

TEST_P(ReferenceOnDevice, HasTheLossGradientsAndParametersOfTheCpuInEveryBit) {
  const c10::Device device = reference::open_device("fake");
  EXPECT_EQ(device, fake::device(0));
  const std::string expected = digests(at::kCPU);
  EXPECT_EQ(fake::memory().allocations, 0U);
  EXPECT_EQ(digests(device), expected);
  EXPECT_GT(fake::memory().allocations, 0U);
}

void use_experts(Config& config) {
  config.precision = Precision::kBf16;
  config.model.experts = 4;
  config.model.top_k = 2;
  config.model.shared_expert = 16;
  config.model.aux_loss = 0.01;
  config.model.z_loss = 0.001;
  config.model.expert_bias = 0.1;
  config.data.masked = reference::Masked::kPrompt;
}

void use_dropout(Config& config) {
  config.precision = Precision::kF32;
  config.model.dropout = 0.1;
  config.model.attention_dropout = 0.2;
  config.model.label_smoothing = 0.1;
  config.data.documents = reference::Documents::kPacked;
  config.loss = reference::Loss::kPerToken;
}

std::function<void(Config&)> in(Precision precision, reference::Fp8Recipe recipe = {}) {
  return [precision, recipe](Config& config) {
    config.precision = precision;
    config.fp8.recipe = recipe;
  };
}

const Run kRuns[] = {{"f64", in(Precision::kF64)},
                     {"f32", in(Precision::kF32)},
                     {"bf16", in(Precision::kBf16)},
                     {"fp8_delayed", in(Precision::kFp8, reference::Fp8Recipe::kDelayed)},
                     {"fp8_current", in(Precision::kFp8, reference::Fp8Recipe::kCurrent)},
                     {"fp8_blockwise", in(Precision::kFp8, reference::Fp8Recipe::kBlockwise)},
                     {"fp8_mxfp8", in(Precision::kFp8F32, reference::Fp8Recipe::kMxfp8)},
                     {"experts", use_experts},
                     {"packed_with_dropout", use_dropout}};

INSTANTIATE_TEST_SUITE_P(Runs, ReferenceOnDevice, ::testing::ValuesIn(kRuns), [](const auto& run) {
  return run.param.name;
});

}  // namespace
}  // namespace ttrace::testing
