#include "analysis/align/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace ttrace {
namespace {

TEST(ParallelFor, CallsEveryIndexOnceWhateverTheThreads) {
  for (const int threads : {0, 1, 2, 7, 100}) {
    std::vector<std::atomic<int>> calls(53);
    parallel_for(calls.size(), threads, [&](std::size_t index) { ++calls[index]; });
    for (const auto& count : calls) {
      EXPECT_EQ(count, 1) << threads;
    }
  }
}

TEST(ParallelFor, RethrowsTheExceptionOfTheLowestIndex) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::string message;
    try {
      parallel_for(1000, 4, [](std::size_t index) {
        if (index % 10 == 7) {
          throw std::runtime_error(std::to_string(index));
        }
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    EXPECT_EQ(message, "7");
  }
}

TEST(ParallelFor, DoesNothingForNoWork) {
  parallel_for(0, 3, [](std::size_t) { FAIL(); });
}

}  // namespace
}  // namespace ttrace
