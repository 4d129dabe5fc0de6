#include "analysis/guess/arrangement.h"

#include "analysis/align/values.h"
#include "analysis/guess/side.h"
#include "analysis/rename/rearrange.h"

#include <ttrace/dims.h>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kMostDims = 5;  // more have too many orders to try

using ShapeView = std::span<const std::int64_t>;

std::vector<std::size_t> dims_of_size(ShapeView shape) {
  std::vector<std::size_t> dims;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (shape[dim] != 1) {
      dims.push_back(dim);
    }
  }
  return dims;
}

std::string letter(std::size_t dim) {
  return std::string(1, static_cast<char>('a' + dim));
}

// The words of both sides where the dimensions of `fine`, in this order, fill those of `coarse` one
// after the other. Empty if they do not.
std::pair<std::string, std::string> filled(ShapeView fine,
                                           ShapeView coarse,
                                           const std::vector<std::size_t>& order) {
  std::vector<std::string> fine_words(fine.size(), "1");
  std::vector<std::string> coarse_words(coarse.size(), "1");
  std::size_t next = 0;
  for (const std::size_t dim : dims_of_size(coarse)) {
    std::int64_t extent = 1;
    std::vector<std::string> names;
    while (next < order.size() && extent < coarse[dim]) {
      const std::size_t from = order[next++];
      extent *= fine[from];
      // Of the factors of a dimension, all but one need a size.
      names.push_back(names.empty() ? letter(from)
                                    : letter(from) + "=" + std::to_string(fine[from]));
      fine_words[from] = names.back();
    }
    if (extent != coarse[dim]) {
      return {};
    }
    const std::string word = fmt::format("{}", fmt::join(names, "*"));
    coarse_words[dim] = names.size() == 1 ? word : "(" + word + ")";
  }
  return next == order.size() ? std::pair(fmt::format("{}", fmt::join(fine_words, " ")),
                                          fmt::format("{}", fmt::join(coarse_words, " ")))
                              : std::pair<std::string, std::string>();
}

// Those where every dimension of `fine` is one of `coarse`, or a factor of one.
void add_fillings(ShapeView fine, ShapeView coarse, bool swap, std::vector<Arrangement>& found) {
  std::vector<std::size_t> order = dims_of_size(fine);
  if (order.size() > kMostDims) {
    return;
  }
  do {
    auto [from, to] = filled(fine, coarse, order);
    if (from.empty() || from == to) {
      continue;
    }
    Arrangement one{std::move(from), std::move(to)};
    if (swap) {
      std::swap(one.reference, one.candidate);
    }
    if (std::ranges::find(found, one) == found.end()) {
      found.push_back(std::move(one));
    }
  } while (std::ranges::next_permutation(order).found);
}

}  // namespace

std::vector<Arrangement> arrangements(ShapeView reference, ShapeView candidate) {
  std::vector<Arrangement> found;
  if (std::ranges::equal(reference, candidate)) {
    found.emplace_back();
  }
  const auto product = [](ShapeView shape) {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  };
  if (product(reference) != product(candidate) || product(reference) <= 1) {
    return found;
  }
  if (dims_of_size(reference).size() >= dims_of_size(candidate).size()) {
    add_fillings(reference, candidate, false, found);
  } else {
    add_fillings(candidate, reference, true, found);
  }
  return found;
}

MergeResult to_candidate(const MergeResult& reference, const Arrangement& how) {
  return rearranged(reference, parse_dims(how.reference), parse_dims(how.candidate));
}

double relative_distance(const MergeResult& left, const MergeResult& right) {
  if (left.shape != right.shape) {
    return std::numeric_limits<double>::infinity();
  }
  const double largest = std::max(norm(numbers_of(left)), norm(numbers_of(right)));
  return largest > 0.0 ? distance(numbers_of(left), numbers_of(right)) / largest : 0.0;
}

}  // namespace ttrace
