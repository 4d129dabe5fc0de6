// Tracks the micro-batch to which the running code belongs.
//
// Several may be open at a time, as in a pipeline; the one that the program used last is the
// current one. Backward of a micro-batch may run while another one is current: once a gradient of
// its graph has arrived, everything that the same graph task runs belongs to that gradient's
// micro-batch.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/microbatch_state.h"

#include <memory>
#include <unordered_map>
#include <vector>

namespace ttrace {

using MicrobatchPtr = std::shared_ptr<MicrobatchState>;

class Microbatches {
 public:
  // The new one is the current one.
  void open(MicrobatchPtr microbatch);
  void close(const MicrobatchPtr& microbatch);
  // Makes an open micro-batch the current one. Returns whether another one was current before.
  bool use(const MicrobatchPtr& microbatch);
  // From now on, everything that graph task `task` runs belongs to `microbatch`.
  void bind(int task, const MicrobatchPtr& microbatch);
  // The micro-batch of graph task `task`, else the current one. Null if none is open.
  [[nodiscard]] MicrobatchPtr current(int task) const;
  void clear();

 private:
  std::vector<MicrobatchPtr> open_;  // the current one last
  std::unordered_map<int, MicrobatchPtr> by_task_;
};

}  // namespace ttrace
