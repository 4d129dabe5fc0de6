#include "trace/file/hdf5_table.h"

#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_output.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>

namespace ttrace {
namespace {

static_assert(std::endian::native == std::endian::little, "rows are packed as the file holds them");

std::size_t fixed_width(ColumnType type) {
  switch (type) {
    case ColumnType::kU64:
    case ColumnType::kF64:
      return 8;
    case ColumnType::kU8:
      return 1;
    case ColumnType::kText:
      break;
  }
  TTRACE_THROW(InternalError, "a text column has no fixed width");
}

RowFormat lay_out(std::vector<std::size_t> widths) {
  RowFormat format;
  format.widths = std::move(widths);
  for (const std::size_t width : format.widths) {
    format.offsets.push_back(format.bytes);
    format.bytes += width;
  }
  return format;
}

// The compound type whose members lie as `format` says; the same in memory and in the file.
Hdf5Id row_type(std::span<const Column> columns, const RowFormat& format, const std::string& path) {
  constexpr const char* kAction = "describe the rows of a table";
  Hdf5Id row(H5Tcreate(H5T_COMPOUND, format.bytes), H5Tclose, path, kAction);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto insert = [&](hid_t type) {
      hdf5_check(H5Tinsert(row.get(), columns[i].name, format.offsets[i], type), path, kAction);
    };
    switch (columns[i].type) {
      case ColumnType::kText:
        insert(text_type(format.widths[i], path).get());
        break;
      case ColumnType::kU64:
        insert(H5T_STD_U64LE);
        break;
      case ColumnType::kF64:
        insert(H5T_IEEE_F64LE);
        break;
      case ColumnType::kU8:
        insert(H5T_STD_U8LE);
        break;
    }
  }
  return row;
}

// Widths of `columns` in a file; texts are as wide as they were written.
std::vector<std::size_t> stored_widths(hid_t type,
                                       std::span<const Column> columns,
                                       const Hdf5Input& file,
                                       const char* table) {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) {
    const int member = H5Tget_member_index(type, column.name);
    if (member < 0) {
      file.throw_damaged(std::string(table) + " has no column '" + column.name + "'");
    }
    if (column.type != ColumnType::kText) {
      widths.push_back(fixed_width(column.type));
      continue;
    }
    const Hdf5Id text(H5Tget_member_type(type, static_cast<unsigned>(member)),
                      H5Tclose,
                      file.path(),
                      "read a column's type");
    if (H5Tget_class(text.get()) != H5T_STRING || H5Tis_variable_str(text.get()) != 0) {
      file.throw_damaged(std::string(table) + ": column '" + column.name +
                         "' is not a text of fixed length");
    }
    widths.push_back(H5Tget_size(text.get()));
  }
  return widths;
}

}  // namespace

void TableBuilder::add_row(std::vector<Cell> row) {
  TTRACE_CHECK(row.size() == columns_.size(),
               InternalError,
               "a row has ",
               row.size(),
               " cells, but the table has ",
               columns_.size(),
               " columns");
  for (std::size_t i = 0; i < row.size(); ++i) {
    TTRACE_CHECK(row[i].index() == static_cast<std::size_t>(columns_[i].type),
                 InternalError,
                 "column '",
                 columns_[i].name,
                 "' got a cell of another type");
  }
  std::move(row.begin(), row.end(), std::back_inserter(cells_));
}

RowFormat TableBuilder::row_format() const {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < columns_.size(); ++column) {
    if (columns_[column].type != ColumnType::kText) {
      widths.push_back(fixed_width(columns_[column].type));
      continue;
    }
    std::size_t longest = 1;  // HDF5 knows no text type of length 0
    for (std::size_t i = column; i < cells_.size(); i += columns_.size()) {
      longest = std::max(longest, std::get<std::string>(cells_[i]).size());
    }
    widths.push_back(longest);
  }
  return lay_out(std::move(widths));
}

std::vector<std::byte> TableBuilder::pack(const RowFormat& format) const {
  std::vector<std::byte> bytes(rows() * format.bytes);
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    std::byte* target =
        bytes.data() + i / columns_.size() * format.bytes + format.offsets[i % columns_.size()];
    if (const auto* text = std::get_if<std::string>(&cells_[i])) {
      std::memcpy(target, text->data(), text->size());
    } else if (const auto* integer = std::get_if<std::uint64_t>(&cells_[i])) {
      std::memcpy(target, integer, sizeof *integer);
    } else if (const auto* number = std::get_if<double>(&cells_[i])) {
      std::memcpy(target, number, sizeof *number);
    } else {
      std::memcpy(target, &std::get<std::uint8_t>(cells_[i]), 1);
    }
  }
  return bytes;
}

void TableBuilder::write(Hdf5Output& output, const char* name) const {
  const hid_t file = output.id();
  const std::string& path = output.path();
  const std::string action = std::string("write the table ") + name;
  const RowFormat format = row_format();
  const Hdf5Id type = row_type(columns_, format, path);
  const hsize_t extent = rows();
  const Hdf5Id space(H5Screate_simple(1, &extent, nullptr), H5Sclose, path, action);
  const Hdf5Id creation = contiguous_dataset_properties(path);
  // The table has no name at first, so that HDF5 does not reuse the older table's bytes for it.
  const Hdf5Id dataset(H5Dcreate_anon(file, type.get(), space.get(), creation.get(), H5P_DEFAULT),
                       H5Dclose,
                       path,
                       action);
  const std::vector<std::byte> bytes = pack(format);
  if (!bytes.empty()) {
    hdf5_check(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
               path,
               action);
  }
  if (hdf5_check(H5Lexists(file, name, H5P_DEFAULT), path, action) > 0) {
    hdf5_check(H5Ldelete(file, name, H5P_DEFAULT), path, action);
  }
  hdf5_check(H5Olink(dataset.get(), file, name, H5P_DEFAULT, H5P_DEFAULT), path, action);
  output.protect(name, digest_of_bytes(bytes));
}

Table::Table(const Hdf5Input& file, const char* name, std::span<const Column> columns) {
  const std::string action = std::string("read the table ") + name;
  const Hdf5Id dataset = file.open_dataset(name);
  const Hdf5Id stored(H5Dget_type(dataset.get()), H5Tclose, file.path(), action);
  if (H5Tget_class(stored.get()) != H5T_COMPOUND) {
    file.throw_damaged(std::string(name) + " is no table");
  }
  const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose, file.path(), action);
  const auto rows = hdf5_check(H5Sget_simple_extent_npoints(space.get()), file.path(), action);
  if (H5Sget_simple_extent_ndims(space.get()) != 1) {
    file.throw_damaged(std::string(name) + " is no table");
  }
  rows_ = static_cast<std::size_t>(rows);
  format_ = lay_out(stored_widths(stored.get(), columns, file, name));
  if (rows_ == 0) {
    file.check_digest(name, digest_of_bytes({}));
    return;
  }
  // Bounds the memory for the rows by the size of the file.
  const Extent extent = file.extent_of(dataset, name);
  if (rows_ > extent.bytes / H5Tget_size(stored.get()) || format_.bytes > extent.bytes / rows_) {
    file.throw_damaged(std::string(name) + " has fewer bytes than its rows need");
  }
  file.check_digest(name, file.digest_at(extent));
  bytes_.resize(rows_ * format_.bytes);
  const Hdf5Id type = row_type(columns, format_, file.path());
  file.check(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes_.data()),
             action);
}

bool Table::has_column(const Hdf5Input& file, const char* name, const char* column) {
  const Hdf5Id dataset = file.open_dataset(name);
  const Hdf5Id stored(H5Dget_type(dataset.get()),
                      H5Tclose,
                      file.path(),
                      std::string("read the columns of ") + name);
  return H5Tget_class(stored.get()) == H5T_COMPOUND &&
         H5Tget_member_index(stored.get(), column) >= 0;
}

const std::byte* Table::cell(std::size_t row, std::size_t column) const {
  return bytes_.data() + row * format_.bytes + format_.offsets[column];
}

std::string_view Table::text(std::size_t row, std::size_t column) const {
  const char* begin = reinterpret_cast<const char*>(cell(row, column));
  return {begin, ::strnlen(begin, format_.widths[column])};
}

std::uint64_t Table::u64(std::size_t row, std::size_t column) const {
  std::uint64_t value = 0;
  std::memcpy(&value, cell(row, column), sizeof value);
  return value;
}

double Table::f64(std::size_t row, std::size_t column) const {
  double value = 0.0;
  std::memcpy(&value, cell(row, column), sizeof value);
  return value;
}

std::uint8_t Table::u8(std::size_t row, std::size_t column) const {
  return std::to_integer<std::uint8_t>(*cell(row, column));
}

}  // namespace ttrace
