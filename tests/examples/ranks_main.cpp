// main() of test programs that run on several MPI ranks; a failure on any rank fails the job.
#include "ranks.h"

#include <gtest/gtest.h>

#include <optional>

namespace {

std::optional<megatron_mini::MpiRuntime>& holder() {
  static std::optional<megatron_mini::MpiRuntime> runtime;
  return runtime;
}

}  // namespace

megatron_mini::MpiRuntime& megatron_mini::testing::runtime() {
  return *holder();
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  holder().emplace(&argc, &argv);
  const int result = RUN_ALL_TESTS();
  holder().reset();
  return result;
}
