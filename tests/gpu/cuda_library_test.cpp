// libttrace_cuda.so as a program opens it. No GPU is needed: without one, every call says so.
#include "gpu/require_gpu.h"
#include "hooks/device/cuda/functions.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <string>
#include <vector>

namespace ttrace {
namespace {

// Asks the driver, which a machine with a GPU has.
bool has_gpu() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) {
    return false;
  }
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
  int found = 0;
  return init != nullptr && count != nullptr && init(0) == 0 && count(&found) == 0 && found > 0;
}

class CudaLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    library_ = dlopen(TTRACE_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  template <class Function>
  Function get(const char* name) {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }

  void* library_ = nullptr;
};

TEST_F(CudaLibrary, HasEveryFunctionInThisVersion) {
  const auto version = get<ttrace_cuda_version_function>("ttrace_cuda_version");
  ASSERT_NE(version, nullptr);
  EXPECT_EQ(version(), TTRACE_CUDA_VERSION);
  for (const char* const name : {"ttrace_cuda_perturb",
                                 "ttrace_cuda_digest",
                                 "ttrace_cuda_compare",
                                 "ttrace_cuda_sum_slices"}) {
    EXPECT_NE(dlsym(library_, name), nullptr) << name;
  }
}

// A second runtime in the process would be found in place of torch's.
TEST_F(CudaLibrary, ShowsNothingOfTheRuntimeInIt) {
  EXPECT_EQ(dlsym(library_, "cudaMalloc"), nullptr);
}

// Symptom: with a GPU the call failed because of its null pointers, and the test expected the words
// for a machine without one.
TEST_F(CudaLibrary, SaysInCudasWordsThatThereIsNoGpu) {
  if (has_gpu()) {
    GTEST_SKIP() << "there is a GPU";
  }
  const auto digest = get<ttrace_cuda_digest_function>("ttrace_cuda_digest");
  const auto perturb = get<ttrace_cuda_perturb_function>("ttrace_cuda_perturb");
  ASSERT_TRUE(digest != nullptr && perturb != nullptr);
  Digest result{};
  const char* const failure = digest(nullptr, nullptr, 0, nullptr, &result);
  ASSERT_NE(failure, nullptr);
  EXPECT_NE(std::string(failure).find("CUDA"), std::string::npos) << failure;
  EXPECT_NE(perturb(nullptr, ElementType::kF32, NoiseClass::kRounding, 1, 8, nullptr), nullptr);
}

// Decided before anything runs.
TEST_F(CudaLibrary, RefusesNoiseOnIntegers) {
  const auto perturb = get<ttrace_cuda_perturb_function>("ttrace_cuda_perturb");
  ASSERT_NE(perturb, nullptr);
  EXPECT_STREQ(perturb(nullptr, ElementType::kI32, NoiseClass::kRounding, 1, 8, nullptr),
               "noise is not defined for such elements");
  EXPECT_EQ(perturb(nullptr, ElementType::kF32, NoiseClass::kRounding, 1, 0, nullptr), nullptr);
}

}  // namespace
}  // namespace ttrace
