#include "analysis/causes/common/factors.h"
#include "analysis/causes/common/order_name.h"
#include "analysis/causes/common/slices.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr std::int64_t kMostBlocks = 16;

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
Order nearest_blocks(const Sides& sides, const View& view, std::int64_t blocks) {
  constexpr std::int64_t kSampled = 4096;
  const std::int64_t elements = view.outer * view.size * view.inner / blocks;
  // Odd, so that a power of two between rows does not pick one column only.
  const std::int64_t stride = std::max<std::int64_t>(1, elements / kSampled) | 1;
  Order order;
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

double error_after(const Sides& sides, const View& view, const Order& order) {
  double squared = 0.0;
  const std::int64_t blocks = std::ssize(order);
  for (std::int64_t c = 0; c < blocks; ++c) {
    squared += block_distance(sides, view, blocks, c, order[static_cast<std::size_t>(c)], 1);
  }
  return std::sqrt(squared);
}

// What `count` equal blocks of the finding are: heads, query groups, experts, or just blocks.
std::string unit_of(const Evidence& evidence, std::size_t count) {
  const bool attention = evidence.vocabulary().is(Role::kAttention, evidence.finding().id.path);
  for (const auto& [key, unit] : {std::pair("heads", "heads"), {"query_groups", "query groups"}}) {
    if (attention && evidence.model_number(key) == static_cast<double>(count)) {
      return unit;
    }
  }
  return "blocks";
}

// Of an order of blocks: none where a few words say it.
double free_numbers(const Order& order) {
  return has_name(order) ? 0.0 : static_cast<double>(order.size());
}

Hypothesis describe(const Evidence& evidence, std::size_t dim, const Order& order, double rest) {
  const Sides& sides = *evidence.sides();
  const std::string axis = axis_of_size(evidence, static_cast<double>(order.size()));
  return {.signature = Signature::kWrongOrder,
          .sentence = fmt::format(
              "along dimension {} its {} equal blocks are the reference's blocks {}{}: {}; in this "
              "order the error falls from {} to {}",
              dim,
              order.size(),
              index_text(order),
              axis.empty() ? "" : ", as many as " + axis + " has ranks",
              is_permutation(order) ? "the right shards are in the wrong order, " +
                                          order_name(order, unit_of(evidence, order.size()))
                                    : "shards were put in the place of others",
              short_number(sides.error),
              short_number(rest)),
          .named = {.axes = axis.empty() ? std::vector<std::string>() : std::vector{axis}},
          .error = sides.error,
          .residual = rest,
          .coefficients = free_numbers(order),
          .bits = bits_of_choice(static_cast<double>(order.size() * sides.reference.shape.size()))};
}

// What one rank holds beside what the reference has there.
struct Held {
  int rank = 0;
  Sides sides;
  Order order;
};

std::vector<Held> held_of(const Evidence& evidence) {
  const Values& reference = evidence.sides()->reference;
  std::vector<Held> list;
  for (const Shard& shard : evidence.match().candidate) {
    const Placement& placement = shard.record->placement;
    Values own = local_values(shard);
    if (placement.partial_count != 1 || placement.dims.size() != reference.shape.size()) {
      return {};
    }
    Values right{own.shape, values_at(reference, shard)};
    const double error = distance(own, right);
    list.push_back({shard.rank, Sides{std::move(right), std::move(own), error}, {}});
  }
  return list;
}

// "rank 0 has blocks [0, 0], rank 1 blocks [1, 1]"
std::string orders_text(const std::vector<Held>& list) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(list.size(), kShown); ++i) {
    text += (i == 0 ? "rank " : ", rank ") + std::to_string(list[i].rank) + " has blocks " +
            index_text(list[i].order);
  }
  return text + (list.size() > kShown ? ", ..." : "");
}

// Every rank has blocks of its own part in an order of its own: what was gathered, or sent, came
// from elsewhere than it should.
std::optional<Hypothesis> by_rank(const Evidence& evidence,
                                  std::vector<Held>& list,
                                  std::size_t dim,
                                  std::int64_t blocks,
                                  const std::string& axis) {
  double rest = 0.0;
  double error = 0.0;
  bool any = false;
  for (Held& held : list) {
    const View view = around(held.sides.reference.shape, dim);
    if (view.size % blocks != 0) {
      return std::nullopt;
    }
    held.order = nearest_blocks(held.sides, view, blocks);
    any = any || !is_identity(held.order);
    rest += std::pow(error_after(held.sides, view, held.order), 2);
    error += held.sides.error * held.sides.error;
  }
  if (!any || std::sqrt(rest) > evidence.tolerance(std::sqrt(error))) {
    return std::nullopt;
  }
  Hypothesis found{
      .signature = Signature::kWrongOrder,
      .sentence = fmt::format(
          "along dimension {} of what a rank holds, cut into {} blocks, as many as {} has ranks, "
          "{} "
          "of the reference: every rank put its own, or another's, where all belong; in this order "
          "the error falls from {} to {}",
          dim,
          blocks,
          axis,
          orders_text(list),
          short_number(std::sqrt(error)),
          short_number(std::sqrt(rest))),
      .named = {.axes = {axis}},
      .error = std::sqrt(error),
      .residual = std::sqrt(rest)};
  for (const Held& held : list) {
    found.coefficients += free_numbers(held.order);
  }
  return found;
}

}  // namespace

std::optional<Hypothesis> find_order_of_parts(const Evidence& evidence) {
  std::vector<Held> list = evidence.sides() == nullptr ? std::vector<Held>() : held_of(evidence);
  std::vector<Hypothesis> found;
  for (const std::string& axis : list.size() < 2 ? std::vector<std::string>() : evidence.axes()) {
    const std::int64_t blocks = evidence.axis_size(axis);
    for (std::size_t dim = 0;
         blocks <= kMostBlocks && dim < evidence.sides()->reference.shape.size();
         ++dim) {
      if (auto one = by_rank(evidence, list, dim, blocks, axis)) {
        found.push_back(*std::move(one));
      }
    }
  }
  return shortest(evidence, std::move(found));
}

std::optional<Hypothesis> find_order_of_blocks(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr) {
    return std::nullopt;
  }
  const double tolerance = evidence.tolerance(sides->error);
  std::vector<Hypothesis> found;
  for (std::int64_t blocks = 2; blocks <= kMostBlocks; ++blocks) {
    for (std::size_t dim = 0; dim < sides->reference.shape.size(); ++dim) {
      const View view = around(sides->reference.shape, dim);
      if (view.size % blocks != 0) {
        continue;
      }
      const auto order = nearest_blocks(*sides, view, blocks);
      const double rest = is_identity(order) ? tolerance + 1.0 : error_after(*sides, view, order);
      if (!is_identity(order) && rest <= tolerance) {
        found.push_back(describe(evidence, dim, order, rest));
      }
    }
  }
  return shortest(evidence, std::move(found));
}

}  // namespace ttrace
