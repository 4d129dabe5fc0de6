// Runs independent pieces of work on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace ttrace {

// Calls work(0) ... work(count - 1), each once, on `threads` threads (0: all cores). Where calls
// throw, the exception of the lowest index is rethrown, so that the message does not depend on
// timing; later indices may then be left out.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t)>& work);

}  // namespace ttrace
