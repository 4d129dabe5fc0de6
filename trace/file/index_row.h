// What a row of a rank file's index says, checked against itself. Complaints know neither file nor
// row.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_table.h"
#include "trace/file/record.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

// Where a long placement is: "@BLOB+OFFSET+BYTES".
struct PlacementElsewhere {
  std::string dataset;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Throws FormatError for another text.
[[nodiscard]] PlacementElsewhere parse_elsewhere(std::string_view text);

// Throws FormatError for an impossible time.
[[nodiscard]] std::uint64_t parse_time(const Table& table, std::size_t row, std::size_t column);

// The number of bytes that a tensor of this shape and type has. Throws FormatError for one too
// large.
[[nodiscard]] std::uint64_t bytes_needed(const Record& record);

// `alike`: a record of the same placement, which need not be parsed again; or null. A record
// without bytes is taken for one whose bytes were not kept. Throws FormatError for a row that
// contradicts itself.
[[nodiscard]] Record parse_row(const Table& index,
                               std::size_t row,
                               std::string_view placement,
                               const Record* alike);

// Throws FormatError where the record's bytes lie outside its dataset, or are not aligned.
void check_range(const Record& record, const Extent& extent);

}  // namespace ttrace
