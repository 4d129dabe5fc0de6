#include "analysis/checks/collective_values.h"

#include "analysis/align/values.h"
#include "analysis/bounds/bounds.h"
#include "analysis/findings/wording.h"
#include "trace/base/unit_in_last_place.h"
#include "trace/file/record.h"

#include <ttrace/element_type.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ttrace {
namespace {

using Doubles = std::vector<double>;

// What one rank must receive; without bounds, every bit must be equal.
struct Expected {
  Doubles values;
  Doubles bounds;
};

std::int64_t rows_of(const Shard& shard) {
  return shard.record->shape.empty() ? 1 : shard.record->shape.front();
}

// Elements of one row of the first dimension.
std::size_t row_size(const Shard& shard) {
  const std::int64_t rows = rows_of(shard);
  return rows == 0 ? 0 : static_cast<std::size_t>(element_count(shard.record->shape) / rows);
}

// g of the bound on a sum of `count` numbers.
double growth(ElementType type, std::size_t count, bool average) {
  if (!is_floating(type)) {
    return 0.0;
  }
  const double roundings = static_cast<double>(count) + (average ? 1.0 : -1.0);
  const double total = roundings * unit_in_last_place(type, 1.0) / 2.0;
  return total / (1.0 - total);
}

Expected reduce(const std::vector<Doubles>& inputs,
                CollectiveReduction reduction,
                ElementType type,
                bool any_order) {
  const std::size_t count = inputs.front().size();
  const bool average = reduction == CollectiveReduction::kAverage;
  const double g = any_order ? growth(type, inputs.size(), average) : 0.0;
  const double share = average ? 1.0 / static_cast<double>(inputs.size()) : 1.0;
  Expected result{Doubles(count), {}};
  if (reduction == CollectiveReduction::kMax) {
    for (std::size_t i = 0; i < count; ++i) {
      result.values[i] = inputs.front()[i];
      for (const Doubles& input : inputs) {
        result.values[i] = std::max(result.values[i], input[i]);
      }
    }
    return result;
  }
  result.bounds.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    long double sum = 0.0L;
    long double magnitude = 0.0L;
    for (const Doubles& input : inputs) {
      sum += static_cast<long double>(input[i]);
      magnitude += std::abs(static_cast<long double>(input[i]));
    }
    result.values[i] = static_cast<double>(sum) * share;
    result.bounds[i] = g * static_cast<double>(magnitude) * share;
  }
  return result;
}

Doubles slice(const Doubles& values, std::size_t first, std::size_t count) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
  return values.empty() ? Doubles() : Doubles(begin, begin + static_cast<std::ptrdiff_t>(count));
}

// Rows that every member sends to every other; equal parts where none are given.
std::vector<std::int64_t> rows_sent(const Member& member) {
  if (!member.call.rows_sent.empty()) {
    return member.call.rows_sent;
  }
  const auto size = static_cast<std::size_t>(member.call.size);
  return std::vector<std::int64_t>(size, rows_of(member.input) / member.call.size);
}

Doubles exchanged(const std::vector<Member>& members,
                  const std::vector<Doubles>& inputs,
                  std::size_t receiver) {
  Doubles result;
  for (std::size_t sender = 0; sender < members.size(); ++sender) {
    const std::vector<std::int64_t> rows = rows_sent(members[sender]);
    const auto before = std::accumulate(
        rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(receiver), std::int64_t{0});
    const std::size_t row = row_size(members[sender].input);
    const Doubles part = slice(inputs[sender],
                               static_cast<std::size_t>(before) * row,
                               static_cast<std::size_t>(rows[receiver]) * row);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

std::vector<Expected> expected_of(const std::vector<Member>& members,
                                  const std::vector<Doubles>& inputs,
                                  bool any_order) {
  const CollectiveCall& call = members.front().call;
  const std::size_t size = members.size();
  std::vector<Expected> result(size);
  if (call.operation == CollectiveOperation::kAllReduce ||
      call.operation == CollectiveOperation::kReduceScatter) {
    const Expected whole =
        reduce(inputs, call.reduction, members.front().input.record->type, any_order);
    const bool scatter = call.operation == CollectiveOperation::kReduceScatter;
    const std::size_t part = whole.values.size() / (scatter ? size : 1);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t first = scatter ? i * part : 0;
      result[i] = {slice(whole.values, first, part), slice(whole.bounds, first, part)};
    }
    return result;
  }
  Doubles all;
  for (const Doubles& input : inputs) {
    all.insert(all.end(), input.begin(), input.end());
  }
  for (std::size_t i = 0; i < size; ++i) {
    result[i].values = call.operation == CollectiveOperation::kAllGather ? all
                       : call.operation == CollectiveOperation::kAllToAll
                           ? exchanged(members, inputs, i)
                           : inputs[static_cast<std::size_t>(call.root)];
  }
  return result;
}

std::string sizes_text(const std::vector<Member>& members, bool outputs) {
  std::string text;
  for (const Member& member : members) {
    const Shard& shard = outputs ? member.output : member.input;
    text += fmt::format("{}{} {} on rank {}",
                        text.empty() ? "" : ", ",
                        name_of(shard.record->type),
                        shape_text(shard.record->shape),
                        shard.rank);
  }
  return text;
}

std::vector<int> ranks_of(const std::vector<Member>& members) {
  std::vector<int> ranks;
  for (const Member& member : members) {
    ranks.push_back(member.input.rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// Inputs that cannot belong to one call.
std::optional<CollectiveFault> check_inputs(const std::vector<Member>& members) {
  const CollectiveCall& call = members.front().call;
  const bool sizes_are_free = call.operation == CollectiveOperation::kAllToAll;
  for (const Member& member : members) {
    const Record& first = *members.front().input.record;
    const Record& input = *member.input.record;
    const std::vector<std::int64_t> rows = rows_sent(member);
    const std::int64_t sent = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const bool fits = sizes_are_free
                          ? rows.size() == members.size() && sent == rows_of(member.input)
                          : input.shape == first.shape;
    if (input.type != first.type || !fits) {
      return CollectiveFault{"the inputs do not fit together: " + sizes_text(members, false),
                             ranks_of(members)};
    }
  }
  return std::nullopt;
}

// Rows that a receiver of an all-to-all expects of a sender that sends another number.
std::optional<CollectiveFault> check_rows(const std::vector<Member>& members) {
  if (members.front().call.operation != CollectiveOperation::kAllToAll) {
    return std::nullopt;
  }
  for (std::size_t to = 0; to < members.size(); ++to) {
    const std::vector<std::int64_t>& expected = members[to].call.rows_received;
    for (std::size_t from = 0; from < expected.size(); ++from) {
      const std::int64_t sent = rows_sent(members[from])[to];
      if (expected[from] != sent) {
        const int receiver = members[to].input.rank;
        const int sender = members[from].input.rank;
        return CollectiveFault{fmt::format("the split sizes do not fit together: rank {} expects "
                                           "{} from rank {}, which sends {}",
                                           receiver,
                                           counted(expected[from], "row"),
                                           sender,
                                           sent),
                               {std::min(sender, receiver), std::max(sender, receiver)}};
      }
    }
  }
  return std::nullopt;
}

struct Difference {
  std::size_t count = 0;
  std::size_t first = 0;
  double largest = 0.0;
};

bool agrees(double found, const Expected& expected, std::size_t at) {
  const double wanted = expected.values[at];
  if (!std::isfinite(wanted)) {
    return true;  // sums of Inf and NaN depend on the order
  }
  const double bound = expected.bounds.empty() ? 0.0 : expected.bounds[at];
  return std::abs(found - wanted) <= bound;  // false for NaN
}

Difference compare_output(const Doubles& output, const Expected& expected) {
  Difference difference;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (agrees(output[i], expected, i)) {
      continue;
    }
    if (difference.count++ == 0) {
      difference.first = i;
    }
    difference.largest = std::max(difference.largest, std::abs(output[i] - expected.values[i]));
  }
  return difference;
}

}  // namespace

std::optional<CollectiveFault> check_values(const std::vector<Member>& members, bool any_order) {
  if (auto fault = check_inputs(members)) {
    return fault;
  }
  if (auto fault = check_rows(members)) {
    return fault;
  }
  std::vector<Doubles> inputs;
  for (const Member& member : members) {
    inputs.push_back(local_values(member.input).data);
  }
  const std::vector<Expected> expected = expected_of(members, inputs, any_order);
  std::optional<CollectiveFault> fault;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Shard& shard = members[i].output;
    const Doubles output = local_values(shard).data;
    if (output.size() != expected[i].values.size()) {
      return CollectiveFault{fmt::format("the outputs have the wrong sizes: {} for the inputs {}",
                                         sizes_text(members, true),
                                         sizes_text(members, false)),
                             ranks_of(members)};
    }
    const Difference difference = compare_output(output, expected[i]);
    if (difference.count == 0) {
      continue;
    }
    if (!fault) {
      fault = CollectiveFault{
          fmt::format(
              "{} of {} on rank {} do not follow from the inputs; the first, at {}, is {:.9g} "
              "instead of {:.9g}; the largest difference is {}",
              difference.count,
              counted(output.size(), "element"),
              shard.rank,
              index_text(unravel(static_cast<std::int64_t>(difference.first), shard.record->shape)),
              output[difference.first],
              expected[i].values[difference.first],
              short_number(difference.largest)),
          {}};
    }
    fault->ranks.push_back(shard.rank);
  }
  return fault;
}

}  // namespace ttrace
