// libttrace_cuda.so as a program opens it. No GPU is needed: without one, every call says so.
#include "gpu/require_gpu.h"
#include "hooks/device/cuda/functions.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <string>
#include <vector>

namespace ttrace {
namespace {

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

TEST_F(CudaLibrary, SaysInCudasWordsThatThereIsNoGpu) {
  const auto digest = get<ttrace_cuda_digest_function>("ttrace_cuda_digest");
  const auto perturb = get<ttrace_cuda_perturb_function>("ttrace_cuda_perturb");
  ASSERT_TRUE(digest != nullptr && perturb != nullptr);
  Digest result{};
  const char* const failure = digest(nullptr, nullptr, 0, nullptr, &result);
  if (failure == nullptr) {
    GTEST_SKIP() << "there is a GPU";
  }
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
