#include "trace/file/trace_writer.h"

#include "trace/base/kind.h"
#include "trace/file/hdf5_format.h"
#include "trace/file/hdf5_output.h"
#include "trace/file/hdf5_tensor.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_schema.h"
#include "trace/file/value_figures.h"
#include "trace/sums/sketch.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ttrace {
namespace {

// As rows of a table have it.
std::string stored_shape(std::span<const std::int64_t> shape) {
  return shape.empty() ? kScalarShape : shape_text(shape);
}

// JSON cannot hold bytes that are not UTF-8; they become U+FFFD.
std::string json_text(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string layout_text(const Layout& layout) {
  nlohmann::json axes = nlohmann::json::array();
  for (const Axis& axis : layout.axes) {
    axes.push_back({{"name", axis.name},
                    {"size", axis.size},
                    {"coordinate", axis.coordinate},
                    {"follows", axis.follows}});
  }
  return json_text(axes);
}

void check_record(const Record& record, const std::string& id, std::span<const std::byte> bytes) {
  const auto expected =
      static_cast<std::size_t>(element_count(record.shape)) * element_size(record.type);
  TTRACE_CHECK(bytes.size() == expected,
               InternalError,
               id,
               ": it got ",
               bytes.size(),
               " bytes, but ",
               name_of(record.type),
               " of shape ",
               stored_shape(record.shape),
               " has ",
               expected);
  TTRACE_CHECK(record.placement.local_shape() == record.shape,
               InternalError,
               id,
               ": its placement has the local shape ",
               shape_text(record.placement.local_shape()),
               ", but the tensor has ",
               shape_text(record.shape));
}

void refuse_existing(const std::string& file) {
  std::error_code error;
  TTRACE_CHECK(!std::filesystem::exists(file, error),
               FormatError,
               file,
               ": the file exists already; choose another TTRACE_DIR, or remove it");
}

}  // namespace

struct TraceWriter::Impl {
  Impl(std::string final_name, const Layout& layout, TraceWriterOptions writer_options)
      : file(std::move(final_name)),
        options(std::move(writer_options)),
        // HDF5 knows one threshold: with a name for every tensor even 8 bytes must be aligned, and
        // 4 KiB for each would be a waste.
        output(file,
               options.named ? 1 : kOwnDatasetBytes,
               options.named ? kBlobAlignment : kDatasetAlignment) {
    const Hdf5Id properties(
        H5Pcreate(H5P_GROUP_CREATE), H5Pclose, output.path(), "create the blob group");
    hdf5_check(H5Pset_obj_track_times(properties.get(), false), output.path(), "create a group");
    const Hdf5Id group(
        H5Gcreate2(output.id(), kBlobGroup, H5P_DEFAULT, properties.get(), H5P_DEFAULT),
        H5Gclose,
        output.path(),
        "create the blob group");
    output.write_attribute(kFormatAttribute, kFormatVersion);
    output.write_attribute(kRankAttribute, layout.rank);
    output.write_attribute(kWorldSizeAttribute, layout.world_size);
    output.write_attribute(kLayoutAttribute, layout_text(layout));
    if (options.began) {
      output.write_attribute(kBeganAttribute, *options.began);
    }
    if (!options.run.empty()) {
      output.write_attribute(kRunAttribute, options.run);
    }
    blob.reserve(kBlobBytes);
  }

  // Runs one public call. After the first failure a record may be missing in the file, so every
  // later call is refused.
  template <class Action>
  void run(Action action) {
    const QuietHdf5 quiet;
    TTRACE_CHECK(!committed, InternalError, file, ": the file is used after commit");
    TTRACE_CHECK(
        failure.empty(), FormatError, file, ": the file cannot be completed, because ", failure);
    failure = "an earlier call failed";
    try {
      action();
      output.check_written();
    } catch (const Error& error) {
      failure = error.message();
      throw;
    }
    failure.clear();
  }

  void append(const Record& record, std::span<const std::byte> bytes) {
    std::string id = to_string(record.id);
    check_record(record, id, bytes);
    TTRACE_CHECK(ids.insert(id).second,
                 InternalError,
                 file,
                 ": ",
                 id,
                 " is recorded twice; record every tensor once");
    std::string dataset = kNoDataset;
    std::uint64_t offset = 0;
    const Keep keep = kept_of(record, options.keeping);
    const std::uint64_t sketch = keep == Keep::kSketch ? add_sketch(record, bytes) : kNoSketch;
    if (keep == Keep::kSketch) {
      // Neither a dataset nor a place in a blob.
    } else if (bytes.size() >= kOwnDatasetBytes || (options.named && !bytes.empty())) {
      dataset = write_named(record, id, bytes);
    } else if (!bytes.empty()) {
      offset = add_to_blob(bytes);
      dataset = blob_name();
    }
    const ValueFigures values = figures_of(record.type, bytes);
    std::vector<Cell> row{
        to_string(record.samples),
        static_cast<std::uint8_t>(keep),
        sketch,
        std::move(id),
        std::string(name_of(record.type)),
        stored_shape(record.shape),
        placement_cell(to_string(record.placement)),
        std::move(dataset),
        offset,
        static_cast<std::uint64_t>(keep == Keep::kBytes ? bytes.size() : 0),
        static_cast<std::uint64_t>(XXH3_64bits(bytes.data(), bytes.size())),
        values.nonfinite,
        record.order,
        values.norm,
        values.max_abs,
        static_cast<std::uint8_t>((record.inferred ? kInferredOwner : 0U) |
                                  (record.undeclared ? kUndeclaredPlacement : 0U) |
                                  (record.needs_no_gradient ? kNeedsNoGradient : 0U) |
                                  (record.lacks_noise ? kLacksNoise : 0U))};
    index.add_row(with_time(std::move(row), record.time));
  }

  [[nodiscard]] std::vector<Cell> with_time(std::vector<Cell> row, std::uint64_t time) const {
    if (options.began) {
      row.emplace_back(time);
    }
    return row;
  }

  // Returns its offset.
  std::uint64_t add_sketch(const Record& record, std::span<const std::byte> bytes) {
    const std::uint64_t offset = sketches.size();
    store(sketch_of(record.type, bytes, record.placement), record.type, sketches);
    return offset;
  }

  void write_sketches() {
    if (!sketches.empty()) {
      write_dataset(output,
                    kSketchData,
                    hdf5_type(ElementType::kU8, output.path()),
                    {sketches.size()},
                    sketches);
      output.protect(kSketchData, digest_of_bytes(sketches));
    }
  }

  std::string write_named(const Record& record,
                          const std::string& id,
                          std::span<const std::byte> bytes) const {
    std::string name = id;
    std::replace(name.begin(), name.end(), '/', '|');
    const std::vector<hsize_t> extents(record.shape.begin(), record.shape.end());
    write_dataset(output, name, hdf5_type(record.type, output.path()), extents, bytes);
    return name;
  }

  // The text, or where it is.
  std::string placement_cell(std::string text) {
    if (text.size() <= kLongestPlacement) {
      return text;
    }
    const auto [entry, is_new] = long_placements.try_emplace(std::move(text));
    if (is_new) {
      const std::uint64_t offset = add_to_blob(std::as_bytes(std::span(entry->first)));
      entry->second = kPlacementElsewhere + blob_name() + "+" + std::to_string(offset) + "+" +
                      std::to_string(entry->first.size());
      placements_digest = digest_of_text(entry->first, placements_digest);
      output.protect(kPlacementsDigest, placements_digest);
    }
    return entry->second;
  }

  [[nodiscard]] std::string blob_name() const {
    std::array<char, 32> name = {};
    std::snprintf(name.data(), name.size(), "%s/%06zu", kBlobGroup, blob_number);
    return name.data();
  }

  // Returns the offset in the blob.
  std::uint64_t add_to_blob(std::span<const std::byte> bytes) {
    const auto aligned = [this] {
      return (blob.size() + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
    };
    if (aligned() + bytes.size() > kBlobBytes) {
      write_blob();
    }
    blob.resize(aligned());
    const std::uint64_t offset = blob.size();
    blob.insert(blob.end(), bytes.begin(), bytes.end());
    return offset;
  }

  // Writes what the blob holds, however little, and begins the next one. HDF5 aligns only datasets
  // of kOwnDatasetBytes and more, hence the padding.
  void write_blob() {
    if (blob.empty()) {
      return;
    }
    blob.resize(std::max(blob.size(), kOwnDatasetBytes));
    write_dataset(
        output, blob_name(), hdf5_type(ElementType::kU8, output.path()), {blob.size()}, blob);
    blob.clear();
    ++blob_number;
  }

  void flush() {
    if (has_partial_index && index.rows() == flushed_rows) {
      return;
    }
    write_blob();
    index.write(output, kPartialIndexTable);
    output.flush();
    has_partial_index = true;
    flushed_rows = index.rows();
  }

  void write_code() {
    TableBuilder table{kCodeColumns};
    for (const auto& [path, text] : lines.sources) {
      table.add_row({path, text, std::string()});
    }
    for (const auto& [path, text] : lines.calls) {
      table.add_row({path, std::string(), text});
    }
    if (table.rows() > 0) {
      table.write(output, kCodeTable);
    }
  }

  void write_not_seen() {
    nlohmann::json facts = nlohmann::json::array();
    for (const NotSeen& fact : not_seen) {
      facts.push_back({{"kind", name_of(fact.kind)}, {"sentence", fact.sentence}});
    }
    if (!facts.empty()) {
      output.write_attribute(kNotSeenAttribute, json_text(facts));
    }
  }

  void commit() {
    write_blob();
    write_sketches();
    index.write(output, kIndexTable);
    if (has_partial_index) {
      output.remove(kPartialIndexTable);
    }
    output.write_attribute(kRecordsAttribute, static_cast<std::uint64_t>(index.rows()));
    output.write_attribute(kNotesAttribute, json_text(notes));
    write_not_seen();
    if (edges.rows() > 0) {
      edges.write(output, kEdgeTable);
    }
    if (sums.rows() > 0) {
      sums.write(output, kSumTable);
    }
    if (sum_columns.rows() > 0) {
      sum_columns.write(output, kSumColumnTable);
    }
    write_code();
    refuse_existing(file);
    output.finish();
  }

  std::string file;
  TraceWriterOptions options;
  Hdf5Output output;
  TableBuilder index{columns_of(kWrittenIndexColumns, options.began.has_value())};
  TableBuilder sums{kSumColumns};
  TableBuilder sum_columns{kSumColumnColumns};
  TableBuilder edges{columns_of(kEdgeColumns, options.began.has_value())};
  std::unordered_set<std::string> ids;
  std::vector<std::byte> blob;  // not yet written
  std::vector<std::byte> sketches;
  std::size_t blob_number = 0;
  std::unordered_map<std::string, std::string> long_placements;  // where each text is
  std::uint64_t placements_digest = 0;
  std::vector<std::string> notes;
  std::vector<NotSeen> not_seen;
  CodeLines lines;
  std::string failure;  // message of the first failure, empty so far
  bool committed = false;
  bool has_partial_index = false;
  std::size_t flushed_rows = 0;
};

TraceWriter::TraceWriter(std::string file, const Layout& layout, TraceWriterOptions options) {
  const QuietHdf5 quiet;
  refuse_existing(file);
  // The failure message of an earlier run does not hold for this one.
  std::error_code ignored;
  std::filesystem::remove(std::filesystem::path(file).replace_extension(".failed"), ignored);
  impl_ = std::make_unique<Impl>(std::move(file), layout, std::move(options));
}

TraceWriter::~TraceWriter() {
  const QuietHdf5 quiet;
  impl_.reset();
}

void TraceWriter::append(Record record, std::span<const std::byte> bytes) {
  impl_->run([&] { impl_->append(record, bytes); });
}

void TraceWriter::note(std::string remark) {
  impl_->run([&] { impl_->notes.push_back(std::move(remark)); });
}

void TraceWriter::not_seen(NotSeen fact) {
  impl_->run([&] {
    if (std::ranges::find(impl_->not_seen, fact) == impl_->not_seen.end()) {
      impl_->not_seen.push_back(std::move(fact));
    }
  });
}

void TraceWriter::code(CodeRole role, const std::string& path, const std::string& text) {
  impl_->run([&] { impl_->lines.add(role, path, text); });
}

void TraceWriter::sum(const RoundedSum& sum) {
  impl_->run([&] {
    for (const double squared : sum.by_column) {
      impl_->sum_columns.add_row({static_cast<std::uint64_t>(impl_->sums.rows()), squared});
    }
    impl_->sums.add_row({to_string(sum.id),
                         std::string(name_of(sum.type)),
                         static_cast<std::uint64_t>(sum.addends),
                         sum.squared.value_or(kUnseenAddend)});
  });
}

void TraceWriter::edge(const Edge& edge) {
  impl_->run([&] {
    impl_->edges.add_row(impl_->with_time(
        {to_string(edge.consumer), to_string(edge.producer), edge.order}, edge.time));
  });
}

void TraceWriter::flush() {
  impl_->run([&] { impl_->flush(); });
}

void TraceWriter::commit() {
  impl_->run([&] { impl_->commit(); });
  impl_->committed = true;
}

bool can_be_sketched(const Record& record) {
  const auto& dims = record.placement.dims;
  return has_sketch(record.type) && !record.undeclared && is_judged_by_size(record.id.kind) &&
         std::none_of(
             dims.begin(), dims.end(), [](const DimPlacement& dim) { return dim.sparse; }) &&
         element_count(record.placement.logical_shape()) >= kSketchedElements;
}

Keep kept_of(const Record& record, const Keeping& keeping) {
  return keeping.keep == Keep::kSketch && can_be_sketched(record) ? keeping.of(to_string(record.id))
                                                                  : Keep::kBytes;
}

std::string start_file(const std::string& directory, int rank) {
  std::array<char, 48> name = {};
  std::snprintf(name.data(), name.size(), "start/rank%05d.h5", rank);
  return (std::filesystem::path(directory) / name.data()).string();
}

std::string step_file(const std::string& directory, std::int64_t step, int rank) {
  std::array<char, 64> name = {};
  std::snprintf(
      name.data(), name.size(), "step%06lld/rank%05d.h5", static_cast<long long>(step), rank);
  return (std::filesystem::path(directory) / name.data()).string();
}

std::string failed_file(const std::string& directory, std::int64_t step, int rank) {
  return std::filesystem::path(step_file(directory, step, rank))
      .replace_extension(".failed")
      .string();
}

void require_free_folder(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code error;
  TTRACE_CHECK(!fs::exists(directory, error) ||
                   (fs::is_directory(directory, error) && fs::is_empty(directory, error)),
               UsageError,
               directory,
               " is not empty; choose another folder, or remove it");
}

}  // namespace ttrace
