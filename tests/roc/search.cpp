#include "roc/search.h"

#include <algorithm>
#include <utility>

namespace ttrace::roc {

std::size_t first_found(std::size_t count, const std::function<bool(std::size_t)>& found) {
  std::size_t begin = 0;
  std::size_t end = count;
  while (begin < end) {
    const std::size_t middle = begin + (end - begin) / 2;
    if (found(middle)) {
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return begin;
}

Search::Search(std::size_t magnitudes, std::vector<Observation> cleans, Run run)
    : magnitudes_(magnitudes), cleans_(std::move(cleans)), run_(std::move(run)) {}

const Observation& Search::observe(std::size_t magnitude, std::size_t batch) {
  const auto found = observations_.find({magnitude, batch});
  if (found != observations_.end()) {
    return found->second;
  }
  return observations_.emplace(std::pair(magnitude, batch), run_(magnitude, batch)).first->second;
}

bool Search::found_in_all(const std::string& detector, std::size_t magnitude) {
  for (std::size_t batch = 0; batch < cleans_.size(); ++batch) {
    if (!observe(magnitude, batch).flagged.contains(detector)) {
      return false;
    }
  }
  return true;
}

std::map<std::string, std::optional<std::size_t>> Search::smallest() {
  std::set<std::string> detectors;
  for (const Observation& clean : cleans_) {
    detectors.insert(clean.present.begin(), clean.present.end());
  }
  std::map<std::string, std::optional<std::size_t>> result;
  for (const std::string& detector : detectors) {
    const bool is_noisy = std::any_of(cleans_.begin(), cleans_.end(), [&](const auto& clean) {
      return !clean.problem.empty() || clean.flagged.contains(detector);
    });
    const std::size_t first =
        is_noisy ? magnitudes_ : first_found(magnitudes_, [&](std::size_t magnitude) {
          return found_in_all(detector, magnitude);
        });
    result[detector] = first < magnitudes_ ? std::optional(first) : std::nullopt;
  }
  return result;
}

}  // namespace ttrace::roc
