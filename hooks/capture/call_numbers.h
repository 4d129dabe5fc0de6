// Numbers the calls of a module, also where activation recomputation runs them again.
//
// Backward visits the checkpointed parts of a forward from the last to the first, and within each
// part the calls run again in the order in which they ran. Where one module is called in several
// parts (layers that share weights, a function that ttrace.region makes visible), the first call
// that runs again is therefore not the first that ran.
//
// A backward in several passes (zero-bubble schedules: gradients of inputs, then of weights) runs
// every part again in each of them. The calls have the same numbers in each pass.
//
// Thread-safety: values; Recorder calls under Capture's lock.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace ttrace {

// In which run of the forward a call stands.
struct ForwardRun {
  bool again = false;  // inside backward
  // First run: differs between checkpointed parts; 0 outside of them. Run again: differs between
  // the nodes of the graph for which parts run again.
  std::uint64_t part = 0;
  std::int64_t pass = 0;  // of backward, in which it runs again

  bool operator==(const ForwardRun&) const = default;
};

class CallNumbers {
 public:
  // The number of the next call of the tensor `first`, whose own call is 0. REQUIRES:
  // first.recompute == run.again.
  [[nodiscard]] int next(const TensorId& first, const ForwardRun& run) const;
  // The same, and counts it.
  int take(const TensorId& first, const ForwardRun& run);
  void clear() { calls_.clear(); }

 private:
  struct Calls {
    std::vector<std::uint64_t> parts;  // of the first run, by call
    // Of what runs again: the part [begin, end) whose call `next` comes next.
    std::size_t begin = 0, next = 0, end = 0;
    ForwardRun again;        // the latest
    std::size_t beyond = 0;  // calls that have no first run
  };
  [[nodiscard]] static std::size_t count_again(Calls& calls, const ForwardRun& run);
  std::map<TensorId, Calls> calls_;  // by id with call 0 and not recomputed
};

}  // namespace ttrace
