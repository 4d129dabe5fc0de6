#include "trace/file/noise_table.h"

#include "trace/file/hdf5_format.h"
#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_output.h"
#include "trace/file/hdf5_table.h"
#include "trace/file/hdf5_tensor.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_schema.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_set>
#include <utility>

namespace ttrace {
namespace {

constexpr const char* kNoiseTable = "/noise";
constexpr const char* kSeedAttribute = "seed";

enum NoiseColumn : std::size_t { kId, kSumSquared, kMaxAbs, kNonfinite };
constexpr std::array<Column, 4> kNoiseColumns = {{
    {"id", ColumnType::kText},
    {"sum_squared", ColumnType::kF64},
    {"max_abs", ColumnType::kF64},
    {"nonfinite", ColumnType::kU64},
}};

// Belongs to kNoiseTable row by row: the place of a tensor's slices in kSliceValues.
constexpr const char* kSliceTable = "/noise_slices";
constexpr const char* kSliceValues = "/noise_slice_values";

enum SliceColumn : std::size_t { kAlongReference, kFirstSlice, kSliceCount };
constexpr std::array<Column, 3> kSliceColumns = {{
    {"along_reference", ColumnType::kF64},
    {"first", ColumnType::kU64},
    {"count", ColumnType::kU64},
}};

// Belongs to kNoiseTable row by row.
constexpr const char* kCoverageTable = "/noise_coverage";

enum CoverageColumn : std::size_t { kCovered };
constexpr std::array<Column, 1> kCoverageColumns = {{{"covered", ColumnType::kU8}}};

void check_values(const NoiseRow& row) {
  // Written so that NaN is refused as well.
  TTRACE_CHECK(row.sum_squared >= 0.0 && row.max_abs >= 0.0 && std::isfinite(row.sum_squared) &&
                   std::isfinite(row.max_abs),
               FormatError,
               "the noise of ",
               to_string(row.id),
               " has the squared sum ",
               row.sum_squared,
               " and the maximum ",
               row.max_abs,
               ", but both must be finite, and neither can be negative");
}

void check_slices(const NoiseRow& row) {
  const bool squares = std::all_of(row.slices.begin(), row.slices.end(), [](double squared) {
    return squared >= 0.0 && std::isfinite(squared);
  });
  TTRACE_CHECK(squares && !(row.along_reference && !std::isfinite(*row.along_reference)),
               FormatError,
               "the noise of slices of ",
               to_string(row.id),
               " holds a value that is not a sum of squares");
}

[[noreturn]] void throw_damaged_row(const Hdf5Input& file,
                                    std::size_t row,
                                    const std::string& cause) {
  file.throw_damaged("row " + std::to_string(row) + " of the noise table: " + cause);
}

// Runs `parse`, whose complaints know neither file nor row.
template <class Parse>
void parse_noise_row(const Hdf5Input& file, std::size_t row, Parse parse) {
  try {
    parse();
  } catch (const FormatError& error) {
    throw_damaged_row(file, row, error.message());
  }
}

bool have_same_ids(const Table& left, const Table& right) {
  if (left.rows() != right.rows()) {
    return false;
  }
  for (std::size_t row = 0; row < left.rows(); ++row) {
    if (left.text(row, kId) != right.text(row, kId)) {
      return false;
    }
  }
  return true;
}

void read_ids(const Hdf5Input& file, const Table& table, std::vector<NoiseRow>& rows) {
  std::unordered_set<std::string_view> ids;  // an id has one spelling
  ids.reserve(table.rows());
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string_view id = table.text(row, kId);
    parse_noise_row(file, row, [&] { rows[row].id = parse_tensor_id(id); });
    if (!ids.insert(id).second) {
      throw_damaged_row(file, row, std::string(id) + " occurs twice");
    }
  }
}

void read_values(const Hdf5Input& file, const Table& table, std::vector<NoiseRow>& rows) {
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row].sum_squared = table.f64(row, kSumSquared);
    rows[row].max_abs = table.f64(row, kMaxAbs);
    rows[row].nonfinite = table.u64(row, kNonfinite);
    parse_noise_row(file, row, [&] { check_values(rows[row]); });
  }
}

void check_rows(const Hdf5Input& file, const char* name, const Table& table, std::size_t rows) {
  if (table.rows() != rows) {
    file.throw_damaged(std::string(name) + " has " + std::to_string(table.rows()) +
                       " rows, but the noise table has " + std::to_string(rows));
  }
}

std::vector<double> read_slice_values(const Hdf5Input& file) {
  if (!file.has_dataset(kSliceValues)) {
    return {};
  }
  const std::string action = std::string("read ") + kSliceValues;
  const Hdf5Id dataset = file.open_dataset(kSliceValues);
  const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose, file.path(), action);
  const auto count = file.check(H5Sget_simple_extent_npoints(space.get()), action);
  // Bounds the memory by the size of the file.
  if (file.extent_of(dataset, kSliceValues).bytes / sizeof(double) <
      static_cast<std::uint64_t>(count)) {
    file.throw_damaged(std::string(kSliceValues) + " has too few bytes for its numbers");
  }
  file.check_digest(kSliceValues, file.digest_at(file.extent_of(dataset, kSliceValues)));
  std::vector<double> values(static_cast<std::size_t>(count));
  file.check(H5Dread(dataset.get(), H5T_IEEE_F64LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
             action);
  return values;
}

// Returns nothing if an earlier version wrote the table.
void read_slices(const Hdf5Input& file, std::vector<NoiseRow>& rows) {
  for (NoiseRow& row : rows) {  // may hold another pass's
    row.along_reference.reset();
    row.slices.clear();
  }
  if (!file.has_dataset(kSliceTable)) {
    return;
  }
  const Table table(file, kSliceTable, kSliceColumns);
  check_rows(file, kSliceTable, table, rows.size());
  const std::vector<double> values = read_slice_values(file);
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::uint64_t first = table.u64(row, kFirstSlice);
    const std::uint64_t count = table.u64(row, kSliceCount);
    if (first > values.size() || count > values.size() - first) {
      throw_damaged_row(file, row, "its slices lie beyond the end of the table");
    }
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    rows[row].along_reference = table.f64(row, kAlongReference);
    rows[row].slices.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
    parse_noise_row(file, row, [&] { check_slices(rows[row]); });
  }
}

// Returns nothing if an earlier version wrote the table.
void read_coverage(const Hdf5Input& file, std::vector<NoiseRow>& rows) {
  for (NoiseRow& row : rows) {  // may hold another pass's
    row.covered.reset();
  }
  if (!file.has_dataset(kCoverageTable)) {
    return;
  }
  const Table table(file, kCoverageTable, kCoverageColumns);
  check_rows(file, kCoverageTable, table, rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    rows[row].covered = table.u8(row, kCovered) != 0;
  }
}

std::string read_run(const Hdf5Input& file) {
  return file.has_attribute(kRunAttribute) ? file.text_attribute(kRunAttribute) : "";
}

// Reads the passes of one reference into one place. They mostly hold the same ids in the same
// order, and those need not be parsed again.
class PassReader {
 public:
  // Valid until the next call.
  [[nodiscard]] NoisePass& read(const std::string& path) {
    const Hdf5Input file(path);
    const std::int64_t seed = file.integer_attribute(kSeedAttribute);
    if (seed < kSelfCheckSeed || seed > std::numeric_limits<int>::max()) {
      file.throw_damaged("its seed is " + std::to_string(seed));
    }
    pass_.seed = static_cast<int>(seed);
    pass_.run = read_run(file);
    pass_.has_digests = file.has_digests();
    Table table(file, kNoiseTable, kNoiseColumns);
    if (!table_ || !have_same_ids(table, *table_)) {
      pass_.rows.resize(table.rows());
      read_ids(file, table, pass_.rows);
    }
    read_values(file, table, pass_.rows);
    read_slices(file, pass_.rows);
    read_coverage(file, pass_.rows);
    table_ = std::move(table);
    return pass_;
  }

 private:
  NoisePass pass_;
  std::optional<Table> table_;  // of the previous pass
};

// Block by block: a second copy of all values in memory costs more than writing them.
class SliceWriter {
 public:
  SliceWriter(Hdf5Output& output, std::uint64_t count)
      : output_(output),
        path_(output.path()),
        type_(hdf5_type(ElementType::kF64, path_)),
        dataset_(create_dataset(output, kSliceValues, type_, {count})) {
    block_.reserve(kBlock);
  }

  void add(std::span<const double> values) {
    while (!values.empty()) {
      const auto part = values.first(std::min(values.size(), kBlock - block_.size()));
      block_.insert(block_.end(), part.begin(), part.end());
      values = values.subspan(part.size());
      if (block_.size() == kBlock) {
        write_block();
      }
    }
  }

  void finish() {
    write_block();
    dataset_.close(path_, kAction);
    output_.protect(kSliceValues, digest_.value());
  }

 private:
  static constexpr std::size_t kBlock = std::size_t{1} << 17;
  static constexpr std::string_view kAction = "write slices of the noise table";

  void write_block() {
    const hsize_t count = block_.size();
    if (count == 0) {
      return;
    }
    const Hdf5Id target(H5Dget_space(dataset_.get()), H5Sclose, path_, kAction);
    const Hdf5Id source(H5Screate_simple(1, &count, nullptr), H5Sclose, path_, kAction);
    hdf5_check(
        H5Sselect_hyperslab(target.get(), H5S_SELECT_SET, &written_, nullptr, &count, nullptr),
        path_,
        kAction);
    hdf5_check(
        H5Dwrite(
            dataset_.get(), type_.get(), source.get(), target.get(), H5P_DEFAULT, block_.data()),
        path_,
        kAction);
    written_ += count;
    digest_.add(std::as_bytes(std::span(block_)));
    block_.clear();
  }

  Hdf5Output& output_;
  const std::string& path_;
  Hdf5Id type_;
  Hdf5Id dataset_;
  hsize_t written_ = 0;
  std::vector<double> block_;
  RunningDigest digest_;
};

// Returns nothing if the row does not have them, as in a table of an earlier version.
void write_slices(const NoisePass& pass, Hdf5Output& output) {
  const bool known = std::all_of(pass.rows.begin(), pass.rows.end(), [](const NoiseRow& row) {
    return row.along_reference.has_value();
  });
  if (!known) {
    return;
  }
  TableBuilder table(kSliceColumns);
  std::uint64_t count = 0;
  for (const NoiseRow& row : pass.rows) {
    table.add_row({*row.along_reference, count, std::uint64_t{row.slices.size()}});
    count += row.slices.size();
  }
  table.write(output, kSliceTable);
  if (count > 0) {
    SliceWriter values(output, count);
    for (const NoiseRow& row : pass.rows) {
      values.add(row.slices);
    }
    values.finish();
  }
}

// Writes nothing if a row does not tell, as in a table of an earlier version.
void write_coverage(const NoisePass& pass, Hdf5Output& output) {
  const bool known = std::all_of(pass.rows.begin(), pass.rows.end(), [](const NoiseRow& row) {
    return row.covered.has_value();
  });
  if (!known) {
    return;
  }
  TableBuilder table(kCoverageColumns);
  for (const NoiseRow& row : pass.rows) {
    table.add_row({static_cast<std::uint8_t>(*row.covered ? 1 : 0)});
  }
  table.write(output, kCoverageTable);
}

// Finished tables only: a `.tmp` is a pass that is still running or was killed.
bool is_noise_file(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  return path.extension() == ".h5" && !stem.empty() &&
         stem.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string noise_file(const std::string& directory, int seed) {
  std::array<char, 48> name = {"noise/self.h5"};
  if (seed != kSelfCheckSeed) {
    std::snprintf(name.data(), name.size(), "noise/%05d.h5", seed);
  }
  return (std::filesystem::path(directory) / name.data()).string();
}

std::string noise_trace(const std::string& directory, int seed) {
  return std::filesystem::path(noise_file(directory, seed)).replace_extension().string();
}

void check_size(const NoiseRow& row, std::int64_t count) {
  constexpr double kRounding = 1.0 + 1e-6;  // of the two numbers
  TTRACE_CHECK(
      row.sum_squared <= static_cast<double>(count) * row.max_abs * row.max_abs * kRounding,
      FormatError,
      "the noise of ",
      to_string(row.id),
      " has the squared sum ",
      row.sum_squared,
      ", which ",
      count,
      " elements of at most ",
      row.max_abs,
      " cannot have");
}

void write_noise(const std::string& directory, const NoisePass& pass) {
  const QuietHdf5 quiet;
  const std::string path = noise_file(directory, pass.seed);
  TTRACE_CHECK(pass.seed >= kSelfCheckSeed,
               UsageError,
               path,
               ": the seed of a noise pass cannot be negative");
  TableBuilder table(kNoiseColumns);
  std::unordered_set<std::string> ids;
  for (const NoiseRow& row : pass.rows) {
    std::string id = to_string(row.id);
    TTRACE_CHECK(ids.insert(id).second,
                 FormatError,
                 path,
                 ": ",
                 id,
                 " occurs twice; give every tensor once");
    check_values(row);
    check_slices(row);
    table.add_row({std::move(id), row.sum_squared, row.max_abs, row.nonfinite});
  }
  Hdf5Output output(path, kOwnDatasetBytes, kDatasetAlignment);
  output.write_attribute(kFormatAttribute, kFormatVersion);
  output.write_attribute(kSeedAttribute, pass.seed);
  if (!pass.run.empty()) {
    output.write_attribute(kRunAttribute, pass.run);
  }
  table.write(output, kNoiseTable);
  write_slices(pass, output);
  write_coverage(pass, output);
  output.finish();
}

std::vector<std::string> noise_files(const std::string& directory) {
  std::vector<std::string> files;
  const std::filesystem::path folder = std::filesystem::path(directory) / "noise";
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) {
    return files;
  }
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (is_noise_file(entry->path())) {
      files.push_back(entry->path().string());
    }
  }
  TTRACE_CHECK(
      !error, FormatError, folder.string(), ": the folder cannot be read: ", error.message());
  std::sort(files.begin(), files.end());
  return files;
}

NoisePass read_noise_file(const std::string& path) {
  const QuietHdf5 quiet;
  PassReader reader;
  return std::move(reader.read(path));
}

void for_each_noise_pass(const std::string& directory,
                         const std::function<void(const NoisePass&)>& use) {
  const QuietHdf5 quiet;
  PassReader reader;
  for (const std::string& path : noise_files(directory)) {
    const NoisePass& pass = reader.read(path);
    TTRACE_CHECK(noise_file(directory, pass.seed) == path,
                 FormatError,
                 path,
                 ": the file holds the noise of seed ",
                 pass.seed,
                 ", which its name contradicts; remove it and run that noise pass again");
    use(pass);
  }
}

std::optional<NoisePass> read_self_check(const std::string& directory) {
  const std::string path = noise_file(directory, kSelfCheckSeed);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return std::nullopt;
  }
  NoisePass pass = read_noise_file(path);
  TTRACE_CHECK(pass.seed == kSelfCheckSeed,
               FormatError,
               path,
               ": the file holds the noise of seed ",
               pass.seed,
               ", which its name contradicts; remove it and run the self-check again");
  return pass;
}

std::string run_of_noise(const std::string& path) {
  const QuietHdf5 quiet;
  return read_run(Hdf5Input(path));
}

std::vector<NoisePass> read_noise(const std::string& directory) {
  std::vector<NoisePass> passes;
  for_each_noise_pass(directory, [&](const NoisePass& pass) { passes.push_back(pass); });
  std::sort(passes.begin(), passes.end(), [](const NoisePass& left, const NoisePass& right) {
    return left.seed < right.seed;
  });
  return passes;
}

}  // namespace ttrace
