#include "trace/file/sample_column.h"

#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_table.h"
#include "trace/file/trace_schema.h"

#include <ttrace/error.h>

#include <cstddef>
#include <string>

namespace ttrace {

void read_samples(const Hdf5Input& file, const char* index, std::vector<Record>& records) {
  if (!Table::has_column(file, index, kSampleColumns.front().name)) {
    return;
  }
  const Table table(file, index, kSampleColumns);
  for (std::size_t row = 0; row < records.size(); ++row) {
    try {
      records[row].samples = parse_sample_dim(table.text(row, 0), records[row].placement);
    } catch (const Error& error) {
      file.throw_damaged("row " + std::to_string(row) + " of the index: " + error.message());
    }
  }
}

}  // namespace ttrace
