#include "hooks/capture/call_numbers.h"

#include <utility>

namespace ttrace {
namespace {

TensorId first_run_of(TensorId id) {
  id.recompute = false;
  return id;
}

}  // namespace

// Returns the number of a call that runs again.
std::size_t CallNumbers::count_again(Calls& calls, const ForwardRun& run) {
  const bool is_same = calls.again == run;
  const bool has_next = calls.again.again && calls.next < calls.end;
  const bool is_first_part = calls.again.again && calls.begin == 0;
  if (is_first_part && is_same && !has_next) {
    return calls.parts.size() + calls.beyond++;
  }
  if (!(has_next && (is_same || is_first_part))) {
    // The part before the last that ran again, which may have stopped early; after the first part
    // the last one, for another pass.
    calls.end = calls.again.again && calls.begin > 0 ? calls.begin : calls.parts.size();
    calls.begin = calls.end;
    while (calls.begin > 0 && calls.parts[calls.begin - 1] == calls.parts[calls.end - 1]) {
      --calls.begin;
    }
    calls.next = calls.begin;
  }
  calls.again = run;
  return calls.next < calls.end ? calls.next++ : calls.beyond++;
}

int CallNumbers::take(const TensorId& first, const ForwardRun& run) {
  Calls& calls = calls_[first_run_of(first)];
  if (!run.again) {
    calls.parts.push_back(run.part);
    return static_cast<int>(calls.parts.size()) - 1;
  }
  return static_cast<int>(count_again(calls, run));
}

int CallNumbers::next(const TensorId& first, const ForwardRun& run) const {
  const auto found = calls_.find(first_run_of(first));
  if (found == calls_.end()) {
    return 0;
  }
  Calls calls = found->second;
  return static_cast<int>(run.again ? count_again(calls, run) : calls.parts.size());
}

}  // namespace ttrace
