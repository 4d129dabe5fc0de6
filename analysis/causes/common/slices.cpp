#include "analysis/causes/common/slices.h"

#include "analysis/findings/wording.h"
#include "trace/place/boxes.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace ttrace {
namespace {

// " (cp rank 0)": the axes on which all of `ranks` have one place that no other holder has.
std::string places_text(const Evidence& evidence, const std::vector<int>& ranks) {
  std::string text;
  for (const std::string& axis : evidence.axes()) {
    std::set<int> own;
    std::set<int> others;
    for (const Shard& shard : evidence.match().candidate) {
      const bool is_own = std::find(ranks.begin(), ranks.end(), shard.rank) != ranks.end();
      (is_own ? own : others).insert(evidence.layout(shard.rank).coordinate(axis));
    }
    if (own.size() == 1 && !others.contains(*own.begin())) {
      text += (text.empty() ? " (" : ", ") + axis + " rank " + std::to_string(*own.begin());
    }
  }
  return text.empty() ? "" : text + ")";
}

}  // namespace

std::string name_of(const Slicing& slicing) {
  return slicing.is_of_rows() ? "rows" : "dimension " + std::to_string(slicing.dim);
}

std::vector<Slicing> last_first(std::vector<Slicing> slicings) {
  std::reverse(slicings.begin(), std::ranges::find_if(slicings, &Slicing::is_of_rows));
  return slicings;
}

double error_outside(std::span<const SliceSums> sums, const std::vector<std::int64_t>& slices) {
  double squared = 0.0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!std::binary_search(slices.begin(), slices.end(), static_cast<std::int64_t>(i))) {
      squared += sums[i].difference_squared;
    }
  }
  return std::sqrt(squared);
}

IndexSet runs_of(const std::vector<std::int64_t>& numbers) {
  std::vector<Interval> runs;
  for (const std::int64_t number : numbers) {
    runs.push_back({number, number + 1});
  }
  return normalised(std::move(runs));
}

std::string ranges_text(const IndexSet& runs) {
  constexpr std::size_t kShown = 4;
  std::string text;
  std::int64_t more = size_of(runs);
  for (const auto& [begin, end] : std::span(runs).first(std::min(kShown, runs.size()))) {
    text += (text.empty() ? "" : ", ") + std::to_string(begin) +
            (end > begin + 1 ? "-" + std::to_string(end - 1) : "");
    more -= end - begin;
  }
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

std::vector<int> holders_of(const Evidence& evidence,
                            std::size_t dim,
                            const std::vector<std::int64_t>& slices) {
  return ranks_holding(evidence.match().candidate, [&](const Rectangle& box) {
    const std::int64_t begin = box.logical_start.at(dim);
    const auto first = std::lower_bound(slices.begin(), slices.end(), begin);
    return first != slices.end() && *first < begin + box.extent.at(dim);
  });
}

std::string holders_text(const Evidence& evidence,
                         std::size_t dim,
                         const std::vector<std::int64_t>& slices) {
  const std::vector<int> ranks = holders_of(evidence, dim, slices);
  return ranks.size() == evidence.match().candidate.size()
             ? ""
             : ", held by " + ranks_text(ranks) + places_text(evidence, ranks);
}

}  // namespace ttrace
