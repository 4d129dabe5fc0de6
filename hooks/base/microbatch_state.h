// The state of the micro-batch that was open in the forward pass, as hooks need it. It is shared,
// because a gradient may arrive after the program's Microbatch is gone.
//
// Thread-safety: `order` is set before the first hook; then immutable.
#pragma once

#include <cstdint>
#include <vector>

namespace ttrace {

struct MicrobatchState {
  std::int64_t index = 0;  // global
  double gradient_scale = 1.0;
  std::vector<std::int64_t> order;  // local sample i is sample order[i]; empty: the identity
};

}  // namespace ttrace
