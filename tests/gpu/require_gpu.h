// Skips the running test with a reason, or fails it where TTRACE_REQUIRE_GPU=1 asks for a GPU.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace ttrace::testing {

inline bool gpu_is_required() {
  const char* const value = std::getenv("TTRACE_REQUIRE_GPU");
  return value != nullptr && std::string(value) == "1";
}

}  // namespace ttrace::testing

// `reason`: why there is no GPU to be used; empty if there is one.
#define TTRACE_NEED_GPU(reason)                                        \
  do {                                                                 \
    if (const std::string why = (reason); !why.empty()) {              \
      if (ttrace::testing::gpu_is_required()) {                        \
        FAIL() << "TTRACE_REQUIRE_GPU=1, but " << why;                 \
      }                                                                \
      GTEST_SKIP() << why << "; TTRACE_REQUIRE_GPU=1 makes this fail"; \
    }                                                                  \
  } while (false)
