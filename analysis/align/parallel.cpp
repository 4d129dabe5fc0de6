#include "analysis/align/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ttrace {

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;  // guards the two below
  std::exception_ptr first_error;
  std::size_t first_index = count;

  // Indices are handed out in ascending order, so the lowest one that throws is always begun before
  // any other failure can stop the loop.
  const auto run = [&] {
    while (!failed) {
      const std::size_t index = next++;
      if (index >= count) {
        return;
      }
      try {
        work(index);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = true;
        if (index < first_index) {
          first_index = index;
          first_error = std::current_exception();
        }
      }
    }
  };

  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t wanted = threads > 0 ? static_cast<std::size_t>(threads) : cores;
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 1; i < std::min(wanted, count); ++i) {
      helpers.emplace_back(run);
    }
    run();
  }  // joins
  if (first_error) {
    std::rethrow_exception(first_error);
  }
}

}  // namespace ttrace
