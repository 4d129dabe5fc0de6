#include "analysis/timeline/lanes.h"

#include "analysis/align/module_path.h"

#include <algorithm>
#include <numeric>

namespace ttrace {
namespace {

bool holds(const Slice& outer, const Slice& inner) {
  return !outer.module.empty() && inner.end <= outer.end && inner.module != outer.module &&
         lies_in(inner.module, outer.module);
}

}  // namespace

std::vector<std::size_t> lanes_of(const std::vector<Slice>& slices) {
  std::vector<std::size_t> sorted(slices.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  // Of two that begin together, the outer one first.
  std::ranges::stable_sort(sorted, [&](std::size_t left, std::size_t right) {
    const Slice& one = slices[left];
    const Slice& other = slices[right];
    return one.begin != other.begin ? one.begin < other.begin
           : one.end != other.end   ? one.end > other.end
                                    : one.module.size() < other.module.size();
  });
  std::vector<std::size_t> result(slices.size());
  std::vector<std::vector<std::size_t>> lanes;  // the slices that are open, the innermost last
  for (const std::size_t at : sorted) {
    const Slice& slice = slices[at];
    std::size_t lane = 0;
    for (;; ++lane) {
      if (lane == lanes.size()) {
        lanes.emplace_back();
      }
      std::vector<std::size_t>& open = lanes[lane];
      while (!open.empty() && slices[open.back()].end <= slice.begin) {
        open.pop_back();
      }
      if (open.empty() || holds(slices[open.back()], slice)) {
        open.push_back(at);
        break;
      }
    }
    result[at] = lane;
  }
  return result;
}

}  // namespace ttrace
