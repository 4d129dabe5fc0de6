// Orders in which a matrix may lie in a buffer. A program that stores it in one and reads it in
// another has every number, in other places.
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

enum class StorageOrder : std::uint8_t {
  kRows,           // [rows, columns]
  kColumns,        // [columns, rows]
  kColumnsOfParts  // [parts, columns, rows / parts]: parts of the rows one after the other
};

struct MatrixPlace {
  std::size_t row = 0;
  std::size_t column = 0;
};

// A buffer of rows x columns numbers. `parts` divides the rows.
struct StoredMatrix {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t parts = 1;

  [[nodiscard]] std::size_t position(StorageOrder order, MatrixPlace place) const;
  // The place at a position in the buffer.
  [[nodiscard]] MatrixPlace place(StorageOrder order, std::size_t position) const;
};

struct Misreading {
  StorageOrder stored = StorageOrder::kRows;
  StorageOrder read = StorageOrder::kRows;

  // Whose number is taken for that of `place`.
  [[nodiscard]] MatrixPlace taken_for(const StoredMatrix& matrix, MatrixPlace place) const;
};

// Of a matrix of one part: two. Of one of several parts: those in which the parts matter, four.
[[nodiscard]] std::vector<Misreading> misreadings(bool of_parts);

// "[rows, features]", "[features, rows]", "[features, rows] (one part after the other)"
[[nodiscard]] std::string order_text(StorageOrder order, const std::string& columns);

}  // namespace ttrace
