// Projections of a matrix, by which a product is checked without computing it again.
//
// A tensor is seen as a matrix X: its columns are the last dimension, its rows all others. P_n is
// the matrix [k, n] that adds index j, with a random sign, to row j mod k: a count-sketch
// (Charikar, Chen and Farach-Colton 2002). From
//
//   left(X) = P_rows X      right(X) = X P_columns^T      core(X) = P_rows X P_columns^T
//
// follows for every product Y = X W^T that core(Y) = left(X) left(W)^T (Freivalds 1977, with
// several vectors on both sides), so that core(Y) - left(X) left(W)^T is the core of the error of
// Y, and its squared Frobenius norm estimates that of the error without bias. Signs depend on the
// index and on n alone, so that cores of one shape can be subtracted.
//
// Thread-safety: values and free functions without shared state; call from any thread.
#pragma once

#include <ttrace/element_type.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ttrace {

inline constexpr std::int64_t kProjections = 32;  // k

// Row-major.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;

  [[nodiscard]] double* row(std::int64_t number) { return values.data() + number * columns; }
  [[nodiscard]] const double* row(std::int64_t number) const {
    return values.data() + number * columns;
  }
};

[[nodiscard]] Matrix zeros(std::int64_t rows, std::int64_t columns);

// A row-major tensor as a matrix. Points into its bytes.
struct MatrixBytes {
  ElementType type = ElementType::kF32;
  const std::byte* bytes = nullptr;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
};

struct Projections {
  Matrix left;           // P_rows X, [k, columns]
  Matrix right;          // X P_columns^T, [rows, k]
  Matrix core;           // P_rows X P_columns^T, [k, k]
  double squares = 0.0;  // ||X||^2, exact
};

// In one walk over its elements.
[[nodiscard]] Projections projections_of(const MatrixBytes& matrix);

// P_n 1 and P_n x, [k].
[[nodiscard]] std::vector<double> projected_ones(std::int64_t count);
[[nodiscard]] std::vector<double> projected(std::span<const double> values);

// left right^T. Requires: as many columns.
[[nodiscard]] Matrix product_of_columns(const Matrix& left, const Matrix& right);
// left right. Requires: as many columns of `left` as rows of `right`.
[[nodiscard]] Matrix product(const Matrix& left, const Matrix& right);
// left^T right, over all rows. Requires: as many rows.
[[nodiscard]] Matrix product_of_rows(const Matrix& left, const Matrix& right);

// to += scale x from. Requires equal shapes.
void add(const Matrix& from, double scale, Matrix& to);
[[nodiscard]] double squared_norm(const Matrix& matrix);

}  // namespace ttrace
