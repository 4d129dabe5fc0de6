#include "trace/base/index_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace ttrace {
namespace {

std::set<std::int64_t> elements_of(const IndexSet& set) {
  std::set<std::int64_t> elements;
  for (const Interval& interval : set) {
    for (std::int64_t i = interval.begin; i < interval.end; ++i) {
      elements.insert(i);
    }
  }
  return elements;
}

TEST(IndexSet, IntervalsThatTouchOrOverlapBecomeOne) {
  EXPECT_EQ(normalised({{4, 6}, {0, 2}, {2, 3}, {5, 8}}), (IndexSet{{0, 3}, {4, 8}}));
  EXPECT_EQ(normalised({{0, 9}, {2, 3}}), (IndexSet{{0, 9}}));
}

TEST(IndexSet, TextNamesIntervalsAndSingleIndices) {
  EXPECT_EQ(to_string(IndexSet{{0, 4}, {7, 8}}), "0:4+7");
  EXPECT_EQ(to_string(IndexSet{}), "");
  EXPECT_EQ(to_string(IndexSet{
                {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}, {16, 17}}),
            "0+2+4+6+8+10+12+14+...");
}

TEST(IndexSet, OperationsAgreeWithThoseOfPlainSets) {
  std::mt19937_64 engine(3);
  for (int round = 0; round < 500; ++round) {
    IndexSet sets[2];
    for (IndexSet& set : sets) {
      for (auto i = engine() % 5; i > 0; --i) {
        const auto begin = static_cast<std::int64_t>(engine() % 20);
        set.push_back({begin, begin + 1 + static_cast<std::int64_t>(engine() % 5)});
      }
      set = normalised(set);
    }
    std::set<std::int64_t> common;
    std::set<std::int64_t> rest;
    const std::set<std::int64_t> right = elements_of(sets[1]);
    for (const std::int64_t i : elements_of(sets[0])) {
      (right.contains(i) ? common : rest).insert(i);
    }
    EXPECT_EQ(elements_of(intersection(sets[0], sets[1])), common);
    EXPECT_EQ(elements_of(difference(sets[0], sets[1])), rest);
    EXPECT_EQ(size_of(sets[1]), std::ssize(right));
    EXPECT_EQ(normalised(difference(sets[0], sets[1])), difference(sets[0], sets[1]));
  }
}

}  // namespace
}  // namespace ttrace
