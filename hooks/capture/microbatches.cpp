#include "hooks/capture/microbatches.h"

#include <algorithm>
#include <utility>

namespace ttrace {

void Microbatches::open(MicrobatchPtr microbatch) {
  open_.push_back(std::move(microbatch));
}

void Microbatches::close(const MicrobatchPtr& microbatch) {
  std::erase(open_, microbatch);
}

bool Microbatches::use(const MicrobatchPtr& microbatch) {
  const auto found = std::find(open_.begin(), open_.end(), microbatch);
  if (found == open_.end() || microbatch == open_.back()) {
    return false;
  }
  std::rotate(found, found + 1, open_.end());
  return true;
}

void Microbatches::bind(int task, const MicrobatchPtr& microbatch) {
  by_task_[task] = microbatch;
}

MicrobatchPtr Microbatches::current(int task) const {
  const auto running = by_task_.find(task);
  if (running != by_task_.end()) {
    return running->second;
  }
  return open_.empty() ? nullptr : open_.back();
}

void Microbatches::clear() {
  open_.clear();
  by_task_.clear();
}

}  // namespace ttrace
