// What a program leaves that ends before its last traced iteration began: which iterations it ran.
//
// One per process, because programs in Python end without destroying their session.
// Thread-safety: training thread only.
#pragma once

#include <cstdint>
#include <string>

namespace ttrace {

// From now on the end of this process, or expect_no_more(), writes an attendance file into
// `directory` unless the iterations from `first` to `last` - 1 have all begun.
void expect_steps(const std::string& directory, int rank, std::int64_t first, std::int64_t last);
// An iteration begins, traced or not.
void note_step(std::int64_t iteration);
// The session ends.
void expect_no_more() noexcept;

}  // namespace ttrace
