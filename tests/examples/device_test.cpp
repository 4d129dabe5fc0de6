// megatron_mini on an accelerator: every tensor is on its rank's device, and no bit differs from
// the CPU's. There is no GPU here; the device is pretended (fake_device.h). An operator that gets a
// tensor of the CPU beside one of the device throws, and memory that is read too early holds NaN.
#include "device.h"

#include "error.h"
#include "fake_device/fake_device.h"
#include "mini_program.h"
#include "process_group_nccl.h"
#include "trace/file/rank_file.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

namespace {

namespace fake = ttrace::testing::fake;
using megatron_mini::testing::ConfigChange;
using megatron_mini::testing::MiniProgram;

struct Run {
  std::string name;
  int ranks;
  std::string arguments;
  std::vector<ConfigChange> changes;
};

std::ostream& operator<<(std::ostream& out, const Run& run) {
  return out << run.name;
}

class FakeDevice : public ::testing::TestWithParam<Run> {};

TEST_P(FakeDevice, HasTheLossGradientsAndParametersOfTheCpuInEveryBit) {
  const MiniProgram program = MiniProgram::with(GetParam().changes);
  const std::string arguments = GetParam().arguments + " --digest --steps 2";
  const auto on_cpu = program.run(GetParam().ranks, arguments);
  ASSERT_EQ(on_cpu.exit_code, 0) << on_cpu.err;
  const auto on_device =
      program.run(GetParam().ranks, arguments + " --device fake", ON_FAKE_DEVICE_PROGRAM);
  EXPECT_EQ(on_device.exit_code, 0) << on_device.err;
  EXPECT_EQ(on_device.out, on_cpu.out);
}

const std::vector<ConfigChange> kExperts = {{"model.experts", "4"},
                                            {"model.top_k", "2"},
                                            {"model.shared_expert", "32"},
                                            {"model.aux_loss", "0.01"},
                                            {"model.z_loss", "0.001"},
                                            {"model.expert_bias", "0.1"},
                                            {"data.masked", "prompt"}};
const std::vector<ConfigChange> kPacked = {{"data.documents", "packed"},
                                           {"model.dropout", "0.1"},
                                           {"model.attention_dropout", "0.2"},
                                           {"model.label_smoothing", "0.1"},
                                           {"loss", "per_token"}};

const Run kRuns[] = {
    {"packed_with_dropout", 1, "", kPacked},
    {"f64_tied_gelu", 1, "--precision f64", {{"model.tied", "true"}, {"model.activation", "gelu"}}},
    {"experts", 1, "", kExperts},
    {"experts_of_several_ranks", 4, "--tp 2 --sp --dp 2 --ep 2", kExperts},
    {"fp8_delayed", 2, "--tp 2 --sp --precision fp8", {}},
    {"fp8_blocks", 1, "--precision fp8", {{"fp8.recipe", "mxfp8"}}},
    {"ring_attention", 2, "--cp 2 --precision f32", kPacked},
    {"recomputed_pipeline",
     2,
     "--pp 2 --vpp 2 --recompute full",
     {{"model.layers", "4"}, {"model.tied", "true"}}},
    {"overlapped_gather", 2, "--dp 2 --zero1 --overlap-gather", {}},
};

INSTANTIATE_TEST_SUITE_P(MegatronMini, FakeDevice, ::testing::ValuesIn(kRuns), [](const auto& run) {
  return run.param.name;
});

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) {
    text += " " + std::to_string(size);
  }
  return text;
}

// What a rank's file says and holds, but for times.
std::string text_of(const ttrace::RankFile& file) {
  std::string text;
  for (const ttrace::Record& record : file.records()) {
    const auto bytes = file.bytes(record);
    text += to_string(record.id) + " " + std::to_string(record.order) + " " +
            std::string(name_of(record.type)) + text_of(record.shape) + " of" +
            text_of(record.placement.logical_shape()) + "\n";
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  for (const ttrace::Edge& edge : file.edges()) {
    text += to_string(edge.consumer) + " takes " + to_string(edge.producer) + "\n";
  }
  for (const std::string& note : file.notes()) {
    text += note + "\n";
  }
  return text;
}

// The files of a traced run of two ranks.
std::string trace_of(const std::string& arguments, const std::string& program) {
  const MiniProgram files({{"model.dropout", "0.1"}});
  const ttrace::testing::TemporaryDirectory folder;
  setenv("TTRACE_PASS", "reference", 1);
  setenv("TTRACE_DIR", folder.path().c_str(), 1);
  setenv("TTRACE_COLLECTIVES", "1", 1);
  const auto result = files.run(2, "--tp 2 --sp " + arguments, program);
  for (const char* const name : {"TTRACE_PASS", "TTRACE_DIR", "TTRACE_COLLECTIVES"}) {
    unsetenv(name);
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::string text;
  for (const std::string rank : {"rank00000.h5", "rank00001.h5"}) {
    text += text_of(ttrace::RankFile(folder / ("step000000/" + rank)));
  }
  return text;
}

TEST(Devices, ARunOnADeviceIsRecordedAsItIsOnTheCpu) {
  const std::string on_cpu = trace_of("", MEGATRON_MINI_PROGRAM);
  EXPECT_GT(on_cpu.size(), 100000U);
  EXPECT_TRUE(trace_of("--device fake", ON_FAKE_DEVICE_PROGRAM) == on_cpu);
}

// All ranks of a machine sat on its first device.
TEST(Devices, EachRankOfAMachineTakesItsOwnAsLongAsThereAreEnough) {
  fake::install();
  for (const int rank : {0, 1, 2, 3}) {
    const c10::Device expected = fake::device(static_cast<c10::DeviceIndex>(rank % fake::kDevices));
    EXPECT_EQ(megatron_mini::open_device("fake", rank), expected);
    EXPECT_EQ(c10::impl::getDeviceGuardImpl(fake::kType)->getDevice(), expected);
  }
  fake::reset();
}

TEST(Devices, ABuildWithoutNcclNamesTheBuildThatHasIt) {
  try {
    megatron_mini::check_has_nccl();
    FAIL() << "it took a build without NCCL for one with it";
  } catch (const megatron_mini::UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--backend nccl needs NCCL, but this program was built without it; build it with "
                 "`./dev build --cuda` and a torch that has CUDA, or use --backend mpi");
  }
}

}  // namespace
