#include "analysis/guess/linear_order.h"

#include "analysis/align/values.h"

#include <cstddef>
#include <span>
#include <vector>

namespace ttrace {
namespace {

constexpr double kSame = 0.02;  // BF16 rounds a product by up to 0.4 %

// One row of what the module took and returned.
struct Call {
  std::vector<double> input;
  std::vector<double> output;
};

std::optional<Call> first_row(const GuessSide& side,
                              const GuessModule& module,
                              std::size_t rows,
                              std::size_t columns) {
  const auto source = side.source_of(module, 0);
  const auto output = module.outputs.find(0);
  const TensorValues taken = source ? side.values(*source) : nullptr;
  const TensorValues returned =
      output == module.outputs.end() ? nullptr : side.values(output->second);
  if (taken == nullptr || returned == nullptr || taken->shape.empty() || returned->shape.empty() ||
      rows != columns || numbers_of(*taken).size() < rows ||
      taken->shape.back() != static_cast<std::int64_t>(columns) ||
      returned->shape.back() != static_cast<std::int64_t>(rows)) {
    return std::nullopt;
  }
  const auto row = numbers_of(*taken).first(columns);
  const auto result = numbers_of(*returned).first(rows);
  return Call{{row.begin(), row.end()}, {result.begin(), result.end()}};
}

// The product of the row with the square matrix, or with its transpose.
std::vector<double> product(std::span<const double> matrix,
                            std::span<const double> row,
                            bool last) {
  const std::size_t size = row.size();
  std::vector<double> result(size, 0.0);
  for (std::size_t i = 0; i < size; ++i) {
    for (std::size_t j = 0; j < size; ++j) {
      result[last ? i : j] += matrix[i * size + j] * row[last ? j : i];
    }
  }
  return result;
}

}  // namespace

std::optional<bool> keeps_inputs_last(const GuessSide& side, UnitNumber weight) {
  const Unit& unit = side.unit(weight);
  const GuessModule& module = *side.module(owner_of(unit.id.path));
  const TensorValues values = side.values(weight);
  if (unit.shape.size() != 2 || values == nullptr) {
    return std::nullopt;
  }
  const auto call = first_row(side,
                              module,
                              static_cast<std::size_t>(unit.shape[0]),
                              static_cast<std::size_t>(unit.shape[1]));
  if (!call) {
    return std::nullopt;
  }
  std::vector<double> bias(call->output.size(), 0.0);
  for (const UnitNumber number : module.parameters) {
    const TensorValues vector = side.unit(number).shape.size() == 1 ? side.values(number) : nullptr;
    if (vector != nullptr && numbers_of(*vector).size() == bias.size()) {
      bias.assign(numbers_of(*vector).begin(), numbers_of(*vector).end());
    }
  }
  std::optional<bool> order;
  for (const bool last : {true, false}) {
    std::vector<double> expected = product(numbers_of(*values), call->input, last);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += bias[i];
    }
    if (distance(expected, call->output) <= kSame * norm(call->output)) {
      if (order) {
        return std::nullopt;  // a symmetric matrix
      }
      order = last;
    }
  }
  return order;
}

}  // namespace ttrace
