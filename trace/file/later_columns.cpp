#include "trace/file/later_columns.h"

#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_table.h"
#include "trace/file/trace_schema.h"

#include <ttrace/error.h>

#include <cstddef>
#include <string>

namespace ttrace {
namespace {

// Calls `read(table, row, record)` for every record where the index has the columns.
template <class Read>
void read_columns(const Hdf5Input& file,
                  const char* index,
                  std::span<const Column> columns,
                  std::vector<Record>& records,
                  const Read& read) {
  if (!Table::has_column(file, index, columns.front().name)) {
    return;
  }
  const Table table(file, index, columns);
  for (std::size_t row = 0; row < records.size(); ++row) {
    try {
      read(table, row, records[row]);
    } catch (const Error& error) {
      file.throw_damaged("row " + std::to_string(row) + " of the index: " + error.message());
    }
  }
}

}  // namespace

void read_samples(const Hdf5Input& file, const char* index, std::vector<Record>& records) {
  read_columns(file,
               index,
               kSampleColumns,
               records,
               [](const Table& table, std::size_t row, Record& record) {
                 record.samples = parse_sample_dim(table.text(row, 0), record.placement);
               });
}

void read_keep(const Hdf5Input& file, const char* index, std::vector<Record>& records) {
  read_columns(
      file, index, kKeepColumns, records, [](const Table& table, std::size_t row, Record& record) {
        const unsigned keep = table.u8(row, keep_column::kKeep);
        TTRACE_CHECK(keep <= static_cast<unsigned>(Keep::kSketch),
                     FormatError,
                     "'keep' is ",
                     keep,
                     ", which this version does not know");
        record.keep = static_cast<Keep>(keep);
        const std::uint64_t offset = table.u64(row, keep_column::kSketch);
        if (offset != kNoSketch) {
          record.sketch = SketchPlace{kSketchData, offset};
        }
        TTRACE_CHECK(record.keep != Keep::kSketch || record.sketch,
                     FormatError,
                     "it is kept as a sketch, but has none");
      });
}

}  // namespace ttrace
