// Made-up tensors as bytes, at any alignment, and comparisons in every bit.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <ttrace/element_type.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ttrace::testing {

inline constexpr ElementType kAllElementTypes[] = {ElementType::kF64,
                                                   ElementType::kF32,
                                                   ElementType::kF16,
                                                   ElementType::kBF16,
                                                   ElementType::kI64,
                                                   ElementType::kI32,
                                                   ElementType::kU8,
                                                   ElementType::kBool,
                                                   ElementType::kE4M3,
                                                   ElementType::kE5M2,
                                                   ElementType::kE8M0};

[[nodiscard]] inline std::vector<double> normal_values(std::int64_t count,
                                                       unsigned seed,
                                                       double deviation = 1.0) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return distribution(engine); });
  return values;
}

// `skip`: bytes before the first element, so that it lies at an odd address.
struct TensorAt {
  TensorAt(ElementType element_type, const std::vector<double>& values, std::size_t skipped = 0)
      : type(element_type),
        count(static_cast<std::int64_t>(values.size())),
        skip(skipped),
        storage(skipped + values.size() * element_size(element_type)) {
    std::vector<std::byte> bytes(storage.size() - skip);
    from_double(type, values.data(), count, bytes.data());
    std::copy(bytes.begin(), bytes.end(), storage.begin() + static_cast<std::ptrdiff_t>(skip));
  }
  [[nodiscard]] const void* data() const { return storage.data() + skip; }
  [[nodiscard]] std::int64_t size() const {
    return static_cast<std::int64_t>(storage.size() - skip);
  }

  ElementType type;
  std::int64_t count;
  std::size_t skip;
  std::vector<std::byte> storage;
};

inline void expect_same_bits(double left, double right, const char* what) {
  EXPECT_EQ(std::bit_cast<std::uint64_t>(left), std::bit_cast<std::uint64_t>(right))
      << what << ": " << left << " and " << right;
}

inline void expect_same_bits(const Statistics& left, const Statistics& right) {
  EXPECT_EQ(left.count, right.count);
  expect_same_bits(left.reference_squared, right.reference_squared, "reference_squared");
  expect_same_bits(left.candidate_squared, right.candidate_squared, "candidate_squared");
  expect_same_bits(left.product, right.product, "product");
  expect_same_bits(left.difference_squared, right.difference_squared, "difference_squared");
  expect_same_bits(left.difference, right.difference, "difference");
  expect_same_bits(left.max_difference, right.max_difference, "max_difference");
  expect_same_bits(left.max_reference, right.max_reference, "max_reference");
  EXPECT_EQ(left.max_index, right.max_index);
  EXPECT_EQ(left.different, right.different);
  EXPECT_EQ(left.reference_nonfinite, right.reference_nonfinite);
  EXPECT_EQ(left.candidate_nonfinite, right.candidate_nonfinite);
  EXPECT_EQ(left.first_nonfinite, right.first_nonfinite);
  ASSERT_EQ(left.nodes.size(), right.nodes.size());
  for (std::size_t i = 0; i < left.nodes.size(); ++i) {
    EXPECT_EQ(left.nodes[i].block, right.nodes[i].block);
    EXPECT_EQ(left.nodes[i].level, right.nodes[i].level);
    expect_same_bits(left.nodes[i].product, right.nodes[i].product, "a node's product");
    expect_same_bits(left.nodes[i].difference, right.nodes[i].difference, "a node's difference");
  }
}

// Of what join_chunks() sets.
inline void expect_same_bits(const Slices& left, const Slices& right) {
  ASSERT_EQ(left.slicings, right.slicings);
  ASSERT_EQ(left.sums.size(), right.sums.size());
  expect_same_bits(left.all.along_reference, right.all.along_reference, "along_reference");
  expect_same_bits(left.all.difference_squared, right.all.difference_squared, "the whole");
  for (std::size_t i = 0; i < left.sums.size(); ++i) {
    expect_same_bits(left.sums[i].difference_squared, right.sums[i].difference_squared, "a slice");
  }
}

}  // namespace ttrace::testing
