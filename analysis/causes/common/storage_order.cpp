#include "analysis/causes/common/storage_order.h"

#include <fmt/core.h>

#include <array>

namespace ttrace {

std::size_t StoredMatrix::position(StorageOrder order, MatrixPlace place) const {
  const std::size_t own = rows / parts;
  switch (order) {
    case StorageOrder::kRows:
      return place.row * columns + place.column;
    case StorageOrder::kColumns:
      return place.column * rows + place.row;
    case StorageOrder::kColumnsOfParts:
      return (place.row / own * columns + place.column) * own + place.row % own;
  }
  return 0;
}

MatrixPlace StoredMatrix::place(StorageOrder order, std::size_t position) const {
  const std::size_t own = rows / parts;
  switch (order) {
    case StorageOrder::kRows:
      return {position / columns, position % columns};
    case StorageOrder::kColumns:
      return {position % rows, position / rows};
    case StorageOrder::kColumnsOfParts:
      return {position / own / columns * own + position % own, position / own % columns};
  }
  return {};
}

MatrixPlace Misreading::taken_for(const StoredMatrix& matrix, MatrixPlace place) const {
  return matrix.place(stored, matrix.position(read, place));
}

std::vector<Misreading> misreadings(bool of_parts) {
  constexpr std::array kOrders = {
      StorageOrder::kRows, StorageOrder::kColumns, StorageOrder::kColumnsOfParts};
  std::vector<Misreading> all;
  for (const StorageOrder stored : kOrders) {
    for (const StorageOrder read : kOrders) {
      const bool has_parts =
          stored == StorageOrder::kColumnsOfParts || read == StorageOrder::kColumnsOfParts;
      if (stored != read && has_parts == of_parts) {
        all.push_back({stored, read});
      }
    }
  }
  return all;
}

std::string order_text(StorageOrder order, const std::string& columns) {
  return order == StorageOrder::kRows
             ? fmt::format("[rows, {}]", columns)
             : fmt::format(
                   "[{}, rows]{}",
                   columns,
                   order == StorageOrder::kColumnsOfParts ? " (one part after the other)" : "");
}

}  // namespace ttrace
