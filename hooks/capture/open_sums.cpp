#include "hooks/capture/open_sums.h"

#include <algorithm>
#include <utility>

namespace ttrace {
namespace {

// Whether `left` may be the program's announcement of the sum that an operator starts as `right`.
bool is_same_sum(const OpenSum& left, const OpenSum& right) {
  return left.backward == right.backward && left.module == right.module &&
         left.elements == right.elements && left.sum.type == right.sum.type &&
         left.sum.addends == right.sum.addends;
}

}  // namespace

void OpenSums::announce(OpenSum sum) {
  sums_.push_back({std::move(sum), true});
}

void OpenSums::begin(OpenSum sum) {
  const auto same = std::find_if(sums_.begin(), sums_.end(), [&](const Entry& known) {
    return known.announced && is_same_sum(known.open, sum);
  });
  if (same != sums_.end()) {
    same->announced = false;
  } else {
    sums_.push_back({std::move(sum), false});
  }
}

void OpenSums::forget_outside_of_scopes() {
  std::erase_if(
      sums_, [](const Entry& entry) { return !entry.open.backward && entry.open.module.empty(); });
}

std::vector<OpenSum> OpenSums::settle(const TensorId& id,
                                      const std::string& module,
                                      std::int64_t elements,
                                      bool backward) {
  std::vector<OpenSum> settled;
  std::erase_if(sums_, [&](Entry& entry) {
    const OpenSum& open = entry.open;
    if (open.backward != backward || open.module != module || open.elements != elements) {
      return false;
    }
    settled.push_back(std::move(entry.open));
    settled.back().sum.id = id;
    return true;
  });
  return settled;
}

}  // namespace ttrace
