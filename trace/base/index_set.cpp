#include "trace/base/index_set.h"

#include <algorithm>

namespace ttrace {

IndexSet normalised(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  IndexSet result;
  for (const Interval& interval : intervals) {
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

IndexSet intersection(const IndexSet& left, const IndexSet& right) {
  IndexSet common;
  for (std::size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    const Interval both{std::max(left[i].begin, right[j].begin),
                        std::min(left[i].end, right[j].end)};
    if (both.begin < both.end) {
      common.push_back(both);
    }
    (left[i].end < right[j].end ? i : j) += 1;
  }
  return common;
}

IndexSet difference(const IndexSet& left, const IndexSet& right) {
  IndexSet rest;
  std::size_t next = 0;  // of `right`: the first that may end beyond what was looked at
  for (const Interval& interval : left) {
    std::int64_t begin = interval.begin;
    for (; next < right.size() && right[next].begin < interval.end; ++next) {
      if (right[next].begin > begin) {
        rest.push_back({begin, right[next].begin});
      }
      begin = std::max(begin, right[next].end);
      if (right[next].end > interval.end) {
        break;  // it may cut the next interval, too
      }
    }
    if (begin < interval.end) {
      rest.push_back({begin, interval.end});
    }
  }
  return rest;
}

std::int64_t size_of(const IndexSet& set) {
  std::int64_t size = 0;
  for (const Interval& interval : set) {
    size += interval.end - interval.begin;
  }
  return size;
}

std::string to_string(const IndexSet& set) {
  constexpr std::size_t kMostPrinted = 8;
  std::string text;
  for (std::size_t i = 0; i < set.size(); ++i) {
    if (i == kMostPrinted) {
      return text + "+...";
    }
    text += (i == 0 ? "" : "+") + std::to_string(set[i].begin);
    if (set[i].end != set[i].begin + 1) {
      text += ":" + std::to_string(set[i].end);
    }
  }
  return text;
}

}  // namespace ttrace
