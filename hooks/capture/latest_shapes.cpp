#include "hooks/capture/latest_shapes.h"

#include <algorithm>
#include <utility>

namespace ttrace {

void LatestShapes::saw(LatestShape activation) {
  const auto same = std::ranges::find_if(latest_, [&](const LatestShape& known) {
    return known.shape == activation.shape && known.microbatch == activation.microbatch;
  });
  if (same == latest_.end()) {
    latest_.push_back(std::move(activation));
    return;
  }
  *same = std::move(activation);
  std::rotate(same, same + 1, latest_.end());
}

std::vector<const LatestShape*> LatestShapes::of(const MicrobatchPtr& microbatch) const {
  std::vector<const LatestShape*> result;
  for (auto activation = latest_.rbegin(); activation != latest_.rend(); ++activation) {
    if (activation->microbatch == microbatch) {
      result.push_back(&*activation);
    }
  }
  return result;
}

}  // namespace ttrace
