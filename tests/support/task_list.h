// Work on several threads where some pieces have to wait for another one.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

namespace ttrace::testing {

struct Task {
  std::function<void()> work;
  std::optional<std::size_t> after = {};  // index of an earlier task
};

// Runs every task once on `threads` threads; of those that may start, the first in the list does.
// An exception ends the list: no further task starts, and it is rethrown when the running ones have
// ended.
void run_tasks(const std::vector<Task>& tasks, int threads);

}  // namespace ttrace::testing
