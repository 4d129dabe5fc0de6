#include "analysis/causes/common/order_name.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <functional>

namespace ttrace {
namespace {

// order[i] for i = 0 to count - 1.
Order made(std::int64_t count, const std::function<std::int64_t(std::int64_t)>& of) {
  Order order(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    order[static_cast<std::size_t>(i)] = of(i);
  }
  return order;
}

Order inverse(const Order& order) {
  Order result(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    result[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return result;
}

std::vector<Order> cycles_of(const Order& order) {
  std::vector<bool> seen(order.size());
  std::vector<Order> cycles;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Order cycle;
    for (std::size_t next = i; !seen[next]; next = static_cast<std::size_t>(order[next])) {
      seen[next] = true;
      cycle.push_back(static_cast<std::int64_t>(next));
    }
    if (cycle.size() > 1) {
      cycles.push_back(std::move(cycle));
    }
  }
  return cycles;
}

// "blocks 0 <-> 1, 4 <-> 5"; empty where that is not all.
std::string exchanges(const std::vector<Order>& cycles, const std::string& unit) {
  constexpr std::size_t kShown = 4;
  std::string text;
  for (const Order& cycle : cycles) {
    if (cycle.size() != 2 || cycles.size() > kShown) {
      return "";
    }
    text += fmt::format("{} {} <-> {}", text.empty() ? unit : ",", cycle[0], cycle[1]);
  }
  return text;
}

// "interleaved: 2 x 3 blocks read as 3 x 2"; empty where that is not all.
std::string interleaved(const Order& order, const std::string& unit) {
  const std::int64_t count = std::ssize(order);
  for (std::int64_t a = 2; a <= count / 2; ++a) {
    const std::int64_t b = count / a;
    if (count % a == 0 && order == made(count, [&](auto i) { return i % a * b + i / a; })) {
      return fmt::format("interleaved: {0} x {1} {2} read as {1} x {0}", a, b, unit);
    }
  }
  return "";
}

// In a few words; empty where these do not say all.
std::string short_name(const Order& order, const std::string& unit) {
  if (auto text = exchanges(cycles_of(order), unit); !text.empty()) {
    return text;
  }
  const std::int64_t count = std::ssize(order);
  // The zig-zag chunks of the ranks, one rank after the other: 0, 2n-1, 1, 2n-2, ...
  const Order zigzag = made(count, [&](auto i) { return i % 2 == 0 ? i / 2 : count - 1 - i / 2; });
  if (count > 2 && count % 2 == 0 && (order == zigzag || inverse(order) == zigzag)) {
    return fmt::format("in the order of zig-zag chunks of {} ranks", count / 2);
  }
  const std::int64_t by = order.empty() ? 0 : order.front();
  if (by != 0 && order == made(count, [&](auto i) { return (i + by) % count; })) {
    return fmt::format("turned by {} {}", by, unit);
  }
  return std::is_sorted(order.rbegin(), order.rend()) ? "reversed" : interleaved(order, unit);
}

}  // namespace

bool is_identity(const Order& order) {
  return order == made(std::ssize(order), std::identity());
}

bool is_permutation(const Order& order) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return is_identity(sorted);
}

Order coarsest(const Order& order) {
  const std::int64_t count = std::ssize(order);
  const auto at = [&](std::int64_t i) { return order[static_cast<std::size_t>(i)]; };
  for (std::int64_t size = count / 2; size > 1; --size) {
    if (count % size != 0) {
      continue;
    }
    Order blocks = made(count / size, [&](auto i) { return at(i * size) / size; });
    // Blocks of `size` slices that stay together.
    if (order == made(count, [&](auto i) {
          return blocks[static_cast<std::size_t>(i / size)] * size + i % size;
        })) {
      return blocks;
    }
  }
  return order;
}

bool has_name(const Order& order) {
  return is_permutation(order) && !short_name(order, "").empty();
}

bool is_interleaved(const Order& order) {
  return is_permutation(order) && short_name(order, "").starts_with("interleaved");
}

std::string order_name(const Order& order, const std::string& unit) {
  if (!is_permutation(order)) {
    return unit + " put in the place of others";
  }
  if (auto text = short_name(order, unit); !text.empty()) {
    return text;
  }
  const std::vector<Order> cycles = cycles_of(order);
  const auto longest = std::ranges::max_element(cycles, {}, &Order::size);
  return fmt::format(
      "{} permuted in {} cycles, the longest of {}", unit, cycles.size(), longest->size());
}

}  // namespace ttrace
