// A candidate with one planted cause, its reference, and the cause that the report names.
#pragma once

#include "analysis/causes/diagnose.h"
#include "analysis/diff.h"
#include "analysis/trace_builder.h"
#include "support/temporary_directory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace ttrace::testing {

using Matrix = std::vector<double>;

// Independent values, so that no tensor is a combination of others.
inline Matrix random_values(std::size_t count, std::uint32_t seed, double size = 1.0) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-size, size);
  Matrix values(count);
  for (double& value : values) {
    value = static_cast<float>(uniform(generator));
  }
  return values;
}

inline Matrix sum(Matrix left, const Matrix& right, double factor = 1.0) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    left[i] += factor * right[i % right.size()];
  }
  return left;
}

// x [rows, inner], w [outer, inner] -> x w' [rows, outer], over inner indices [first, last).
inline Matrix product(
    const Matrix& x, const Matrix& w, std::size_t inner, std::size_t first, std::size_t last) {
  const std::size_t rows = x.size() / inner;
  const std::size_t outer = w.size() / inner;
  Matrix y(rows * outer);
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < outer; ++column) {
      for (std::size_t k = first; k < last; ++k) {
        y[row * outer + column] += x[row * inner + k] * w[column * inner + k];
      }
    }
  }
  return y;
}

// Columns [first, last) of a matrix with `columns` columns.
inline Matrix columns_of(const Matrix& matrix,
                         std::size_t columns,
                         std::size_t first,
                         std::size_t last) {
  Matrix part;
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    if (i % columns >= first && i % columns < last) {
      part.push_back(matrix[i]);
    }
  }
  return part;
}

inline Matrix rows_of(const Matrix& matrix,
                      std::size_t columns,
                      std::size_t first,
                      std::size_t last) {
  return {matrix.begin() + static_cast<std::ptrdiff_t>(first * columns),
          matrix.begin() + static_cast<std::ptrdiff_t>(last * columns)};
}

inline DimPlacement all(std::int64_t size) {
  return {size, size, {{0, 0, size}}};
}

inline DimPlacement share(std::int64_t size, int index, int count) {
  return part(size, index, count).dims.front();
}

class DiagnosisTest : public ::testing::Test {
 protected:
  static constexpr auto kOutput = "s0/m0/output/a/0";

  // The diagnosis of a run whose only output is `candidate`, while the reference has `reference`.
  Diagnosis when(const Matrix& reference,
                 const Matrix& candidate,
                 const std::vector<std::int64_t>& shape) {
    add_reference(kOutput, reference, shape);
    add_candidate(kOutput, candidate, shape);
    return diagnosis(kOutput);
  }
  // The diagnosis of the first divergence, whose id must be `id`; bounds are 1e-3 wherever values
  // may differ.
  Diagnosis diagnosis(const std::string& id) {
    const Report report = report_of_run();
    EXPECT_TRUE(report.diverged());
    EXPECT_EQ(to_string(report.tensors.at(report.first_divergence.value_or(0)).id), id);
    EXPECT_TRUE(report.diagnosis.has_value()) << report.tensors.front().cause();
    return report.diagnosis.value_or(Diagnosis{});
  }
  Report report_of_run() {
    static_cast<void>(reference_.write());
    write_noise_passes(directory_ / "reference", noise_);
    return diff(Trace::open(directory_ / "reference"), candidate_.write());
  }
  void add_reference(const std::string& id,
                     const Matrix& values,
                     const std::vector<std::int64_t>& shape) {
    reference_.add(0, {id, values, ElementType::kF32, shape});
    noise_.push_back(noise_row(id, 1e-3, 1e-4));
  }
  void add_candidate(const std::string& id,
                     const Matrix& values,
                     const std::vector<std::int64_t>& shape) {
    candidate_.add_everywhere({id, values, ElementType::kF32, shape});
  }
  void add_both(const std::string& id,
                const Matrix& values,
                const std::vector<std::int64_t>& shape) {
    add_reference(id, values, shape);
    add_candidate(id, values, shape);
  }

  TemporaryDirectory directory_;
  TraceBuilder reference_{directory_ / "reference", "reference"};
  TraceBuilder candidate_{directory_ / "candidate", "candidate", 2};
  std::vector<NoiseRow> noise_;
};

}  // namespace ttrace::testing
