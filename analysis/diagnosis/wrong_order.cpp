#include "analysis/diagnosis/signatures.h"
#include "analysis/wording.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace ttrace {
namespace {

constexpr std::int64_t kMostBlocks = 16;

// A tensor seen as [outer, size, inner] around one dimension.
struct View {
  std::int64_t outer = 1;
  std::int64_t size = 1;
  std::int64_t inner = 1;
};

View around(const std::vector<std::int64_t>& shape, std::size_t dim) {
  View view;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    (i < dim ? view.outer : i == dim ? view.size : view.inner) *= shape[i];
  }
  return view;
}

// Squared distance of the candidate's block `c` from the reference's block `r`, over every
// `stride`th of the positions in it.
double block_distance(const Sides& sides,
                      const View& view,
                      std::int64_t blocks,
                      std::int64_t c,
                      std::int64_t r,
                      std::int64_t stride) {
  const std::int64_t run = view.size / blocks * view.inner;  // contiguous elements of a block
  const std::int64_t row = view.size * view.inner;
  double squared = 0.0;
  for (std::int64_t i = 0; i < view.outer * run; i += stride) {
    const std::int64_t at = i / run * row + i % run;
    const double d = sides.candidate.data[static_cast<std::size_t>(at + c * run)] -
                     sides.reference.data[static_cast<std::size_t>(at + r * run)];
    squared += d * d;
  }
  return squared;
}

// For every block of the candidate the nearest block of the reference.
std::vector<std::int64_t> nearest_blocks(const Sides& sides,
                                         const View& view,
                                         std::int64_t blocks) {
  constexpr std::int64_t kSampled = 4096;
  const std::int64_t elements = view.outer * view.size * view.inner / blocks;
  // Odd, so that a power of two between rows does not pick one column only.
  const std::int64_t stride = std::max<std::int64_t>(1, elements / kSampled) | 1;
  std::vector<std::int64_t> order;
  for (std::int64_t c = 0; c < blocks; ++c) {
    std::int64_t best = 0;
    double least = block_distance(sides, view, blocks, c, 0, stride);
    for (std::int64_t r = 1; r < blocks; ++r) {
      const double d = block_distance(sides, view, blocks, c, r, stride);
      if (d < least) {
        least = d;
        best = r;
      }
    }
    order.push_back(best);
  }
  return order;
}

bool is_identity(const std::vector<std::int64_t>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<std::int64_t>(i)) {
      return false;
    }
  }
  return true;
}

double error_after(const Sides& sides, const View& view, const std::vector<std::int64_t>& order) {
  double squared = 0.0;
  const std::int64_t blocks = std::ssize(order);
  for (std::int64_t c = 0; c < blocks; ++c) {
    squared += block_distance(sides, view, blocks, c, order[static_cast<std::size_t>(c)], 1);
  }
  return std::sqrt(squared);
}

Diagnosis describe(const Evidence& evidence,
                   std::size_t dim,
                   const std::vector<std::int64_t>& order,
                   double rest) {
  const bool permuted = std::set(order.begin(), order.end()).size() == order.size();
  const std::string axis = axis_of_size(evidence, static_cast<double>(order.size()));
  const std::string count = std::to_string(order.size());
  return {Signature::kWrongOrder,
          "along dimension " + std::to_string(dim) + " its " + count +
              " equal blocks are the reference's blocks " + index_text(order) +
              (axis.empty() ? "" : ", as many as " + axis + " has ranks") +
              (permuted ? ": the right shards in the wrong order"
                        : ": shards put in the place of others") +
              "; so laid the error falls from " + short_number(evidence.sides()->error) + " to " +
              short_number(rest)};
}

}  // namespace

std::optional<Diagnosis> find_wrong_order(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double tolerance = evidence.tolerance(sides->error);
  for (std::int64_t blocks = 2; blocks <= kMostBlocks; ++blocks) {
    for (std::size_t dim = 0; dim < sides->reference.shape.size(); ++dim) {
      const View view = around(sides->reference.shape, dim);
      if (view.size % blocks != 0) {
        continue;
      }
      const auto order = nearest_blocks(*sides, view, blocks);
      if (is_identity(order)) {
        continue;
      }
      if (const double rest = error_after(*sides, view, order); rest <= tolerance) {
        return describe(evidence, dim, order, rest);
      }
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
