#include "hooks/capture/call_numbers.h"

#include <utility>

namespace ttrace {
namespace {

constexpr std::uint64_t kNoPart = 0;

TensorId first_run_of(TensorId id) {
  id.recompute = false;
  return id;
}

}  // namespace

// Returns the number of a call that runs again for `node`.
std::size_t CallNumbers::count_again(Calls& calls, std::uint64_t node) {
  const bool is_same_part = calls.runs_again && node == calls.node && calls.next < calls.end;
  if (!is_same_part && !(calls.runs_again && calls.begin == 0)) {
    // The part before the last that ran again; it may have stopped early.
    calls.end = calls.runs_again ? calls.begin : calls.parts.size();
    calls.begin = calls.end;
    while (calls.begin > 0 && calls.parts[calls.begin - 1] == calls.parts[calls.end - 1]) {
      --calls.begin;
    }
    calls.next = calls.begin;
    calls.node = node;
    calls.runs_again = true;
  }
  return calls.next < calls.end ? calls.next++ : calls.parts.size() + calls.beyond++;
}

int CallNumbers::take(const TensorId& first, const ForwardRun& run) {
  Calls& calls = calls_[first_run_of(first)];
  if (!run.again) {
    calls.parts.push_back(run.part);
    return static_cast<int>(calls.parts.size()) - 1;
  }
  return static_cast<int>(count_again(calls, run.part));
}

int CallNumbers::next(const TensorId& first, const ForwardRun& run) const {
  const auto found = calls_.find(first_run_of(first));
  if (found == calls_.end()) {
    return 0;
  }
  Calls calls = found->second;
  return static_cast<int>(run.again ? count_again(calls, run.part) : calls.parts.size());
}

}  // namespace ttrace
