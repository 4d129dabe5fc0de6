// Tables of fixed-width rows: HDF5 compound datasets, written and read whole.
//
// Thread-safety: one thread at a time while building; a Table is immutable.
#pragma once

#include "trace/file/hdf5_id.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ttrace {

class Hdf5Input;
class Hdf5Output;

enum class ColumnType : std::uint8_t { kText, kU64, kF64, kU8 };

struct Column {
  const char* name;
  ColumnType type;
};

// Alternatives in the order of ColumnType.
using Cell = std::variant<std::string, std::uint64_t, double, std::uint8_t>;

// The position of each column in a packed row.
struct RowFormat {
  std::vector<std::size_t> offsets;  // one per column, in bytes
  std::vector<std::size_t> widths;   // one per column, in bytes
  std::size_t bytes = 0;
};

// Collects rows and writes them at once; texts get the width of the longest.
class TableBuilder {
 public:
  // `columns` outlives the builder.
  explicit TableBuilder(std::span<const Column> columns) : columns_(columns) {}

  // One cell per column, of the column's type.
  void add_row(std::vector<Cell> row);
  [[nodiscard]] std::size_t rows() const { return cells_.size() / columns_.size(); }

  // Writes dataset `name` and notes its digest. An older one of that name stays whole until the new
  // one is. Throws FormatError.
  void write(Hdf5Output& output, const char* name) const;

 private:
  [[nodiscard]] RowFormat row_format() const;
  [[nodiscard]] std::vector<std::byte> pack(const RowFormat& format) const;

  std::span<const Column> columns_;
  std::vector<Cell> cells_;  // row by row
};

// A table in memory.
class Table {
 public:
  // Reads `columns` of dataset `name`, in any order there. Throws FormatError for an absent or
  // foreign one, or one that does not have its digest.
  Table(const Hdf5Input& file, const char* name, std::span<const Column> columns);
  // Whether the table `name` has a column of this name.
  [[nodiscard]] static bool has_column(const Hdf5Input& file, const char* name, const char* column);

  [[nodiscard]] std::size_t rows() const { return rows_; }
  // `column` counts in the list given to the constructor and has the type asked for.
  [[nodiscard]] std::string_view text(std::size_t row, std::size_t column) const;
  [[nodiscard]] std::uint64_t u64(std::size_t row, std::size_t column) const;
  [[nodiscard]] double f64(std::size_t row, std::size_t column) const;
  [[nodiscard]] std::uint8_t u8(std::size_t row, std::size_t column) const;

 private:
  [[nodiscard]] const std::byte* cell(std::size_t row, std::size_t column) const;

  std::size_t rows_ = 0;
  RowFormat format_;
  std::vector<std::byte> bytes_;
};

}  // namespace ttrace
