#include "analysis/causes/common/order_name.h"

#include <algorithm>
#include <cstddef>

namespace ttrace {
namespace {

std::int64_t at(const Order& order, std::int64_t index) {
  return order[static_cast<std::size_t>(index)];
}

// The zig-zag chunks of `ranks` ranks one rank after the other: 0, 2n-1, 1, 2n-2, ...
Order zigzag(std::int64_t ranks) {
  Order order;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    order.push_back(rank);
    order.push_back(2 * ranks - 1 - rank);
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

// Blocks of `size` slices that stay together.
bool keeps_blocks(const Order& order, std::int64_t size) {
  for (std::int64_t i = 0; i < std::ssize(order); ++i) {
    const std::int64_t first = at(order, i / size * size);
    if (first % size != 0 || at(order, i) != first + i % size) {
      return false;
    }
  }
  return true;
}

std::vector<Order> cycles_of(const Order& order) {
  std::vector<bool> seen(order.size());
  std::vector<Order> cycles;
  for (std::int64_t i = 0; i < std::ssize(order); ++i) {
    Order cycle;
    for (std::int64_t next = i; !seen[static_cast<std::size_t>(next)]; next = at(order, next)) {
      seen[static_cast<std::size_t>(next)] = true;
      cycle.push_back(next);
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
    text += (text.empty() ? unit + " " : ", ") + std::to_string(cycle[0]) + " <-> " +
            std::to_string(cycle[1]);
  }
  return text;
}

// In a few words; empty where these do not say all.
std::string short_name(const Order& order, const std::string& unit) {
  if (auto text = exchanges(cycles_of(order), unit); !text.empty()) {
    return text;
  }
  const std::int64_t count = std::ssize(order);
  if (const Order zigzagged = count % 2 == 0 ? zigzag(count / 2) : Order();
      count > 2 && (order == zigzagged || inverse(order) == zigzagged)) {
    return "in the order of zig-zag chunks of " + std::to_string(count / 2) + " ranks";
  }
  if (const std::int64_t by = turned_by(order); by != 0) {
    return "turned by " + std::to_string(by) + " " + unit;
  }
  if (std::is_sorted(order.rbegin(), order.rend())) {
    return "reversed";
  }
  if (const std::int64_t rows = interleaved_by(order); rows != 0) {
    return "interleaved: " + std::to_string(rows) + " x " + std::to_string(count / rows) + " " +
           unit + " read as " + std::to_string(count / rows) + " x " + std::to_string(rows);
  }
  return "";
}

std::string name_of_permutation(const Order& order, const std::string& unit) {
  if (auto text = short_name(order, unit); !text.empty()) {
    return text;
  }
  const std::vector<Order> cycles = cycles_of(order);
  const auto longest =
      std::max_element(cycles.begin(), cycles.end(), [](const Order& left, const Order& right) {
        return left.size() < right.size();
      });
  return unit + " permuted in " + std::to_string(cycles.size()) + " cycles, the longest of " +
         std::to_string(longest->size());
}

}  // namespace

bool is_identity(const Order& order) {
  for (std::int64_t i = 0; i < std::ssize(order); ++i) {
    if (at(order, i) != i) {
      return false;
    }
  }
  return true;
}

bool is_permutation(const Order& order) {
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return is_identity(sorted);
}

Order coarsest(const Order& order) {
  const std::int64_t count = std::ssize(order);
  for (std::int64_t size = count / 2; size > 1; --size) {
    if (count % size != 0 || !keeps_blocks(order, size)) {
      continue;
    }
    Order blocks;
    for (std::int64_t i = 0; i < count; i += size) {
      blocks.push_back(at(order, i) / size);
    }
    return blocks;
  }
  return order;
}

std::int64_t turned_by(const Order& order) {
  const std::int64_t count = std::ssize(order);
  const std::int64_t by = order.empty() ? 0 : order.front();
  for (std::int64_t i = 0; i < count; ++i) {
    if (at(order, i) != (i + by) % count) {
      return 0;
    }
  }
  return by;
}

std::int64_t interleaved_by(const Order& order) {
  const std::int64_t count = std::ssize(order);
  for (std::int64_t rows = 2; rows <= count / 2; ++rows) {
    if (count % rows != 0) {
      continue;
    }
    bool is = true;
    for (std::int64_t i = 0; i < count && is; ++i) {
      is = at(order, i) == i % rows * (count / rows) + i / rows;
    }
    if (is) {
      return rows;
    }
  }
  return 0;
}

bool has_name(const Order& order) {
  return is_permutation(order) && !short_name(order, "").empty();
}

std::string order_name(const Order& order, const std::string& unit) {
  return is_permutation(order) ? name_of_permutation(order, unit)
                               : unit + " put in the place of others";
}

}  // namespace ttrace
