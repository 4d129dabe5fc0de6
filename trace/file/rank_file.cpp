#include "trace/file/rank_file.h"

#include "trace/base/durable_file.h"
#include "trace/file/borrowed.h"
#include "trace/file/file_digests.h"
#include "trace/file/hdf5_format.h"
#include "trace/file/hdf5_input.h"
#include "trace/file/index_row.h"
#include "trace/file/later_columns.h"
#include "trace/file/mapping.h"
#include "trace/file/trace_schema.h"
#include "trace/sums/sketch.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ttrace {
namespace {

// A place within a file, put into words only where something is wrong there.
struct Row {
  std::size_t row = 0;
  const char* table = nullptr;
};

std::string to_text(const Row& place) {
  return "row " + std::to_string(place.row) + " of " + place.table;
}

std::string to_text(const char* place) {
  return place;
}

// Runs `parse`, whose complaints know neither file nor place.
template <class Place, class Parse>
void parse_part(const Hdf5Input& file, const Place& place, Parse parse) {
  try {
    parse();
  } catch (const Error& error) {
    file.throw_damaged(to_text(place) + ": " + error.message());
  } catch (const nlohmann::json::exception& error) {
    file.throw_damaged(to_text(place) + ": " + error.what());
  }
}

int to_int(const Hdf5Input& file, const char* attribute, std::int64_t lowest) {
  const std::int64_t value = file.integer_attribute(attribute);
  if (value < lowest || value > std::numeric_limits<int>::max()) {
    file.throw_damaged(std::string(attribute) + " is " + std::to_string(value));
  }
  return static_cast<int>(value);
}

Layout read_layout(const Hdf5Input& file) {
  Layout layout;
  layout.rank = to_int(file, kRankAttribute, 0);
  layout.world_size = to_int(file, kWorldSizeAttribute, 1);
  if (layout.rank >= layout.world_size) {
    file.throw_damaged("it belongs to rank " + std::to_string(layout.rank) + " of " +
                       std::to_string(layout.world_size));
  }
  const std::string text = file.text_attribute(kLayoutAttribute);
  parse_part(file, "attribute 'layout'", [&] {
    for (const auto& axis : nlohmann::json::parse(text)) {
      layout.add(axis.at("name").get<std::string>(),
                 axis.at("size").get<int>(),
                 axis.at("coordinate").get<int>(),
                 axis.at("follows").get<std::string>());
    }
  });
  return layout;
}

std::optional<std::uint64_t> read_began(const Hdf5Input& file) {
  if (!file.has_attribute(kBeganAttribute)) {
    return std::nullopt;
  }
  const std::int64_t began = file.integer_attribute(kBeganAttribute);
  if (began < 0) {
    file.throw_damaged("the step began " + std::to_string(began) + " ns after 1970");
  }
  return static_cast<std::uint64_t>(began);
}

std::vector<Edge> read_edges(const Hdf5Input& file, bool has_times) {
  std::vector<Edge> edges;
  if (!file.has_dataset(kEdgeTable)) {
    return edges;
  }
  const Table table(file, kEdgeTable, columns_of(kEdgeColumns, has_times));
  for (std::size_t row = 0; row < table.rows(); ++row) {
    parse_part(file, Row{row, "the edges"}, [&] {
      edges.push_back({parse_tensor_id(table.text(row, edge_column::kConsumer)),
                       parse_tensor_id(table.text(row, edge_column::kProducer)),
                       table.u64(row, edge_column::kOrder),
                       has_times ? parse_time(table, row, edge_column::kTime) : 0});
    });
  }
  return edges;
}

void read_sum_columns(const Hdf5Input& file, std::vector<RoundedSum>& sums) {
  if (!file.has_dataset(kSumColumnTable)) {
    return;
  }
  const Table table(file, kSumColumnTable, kSumColumnColumns);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    parse_part(file, Row{row, "the columns of sums"}, [&] {
      const std::uint64_t sum = table.u64(row, sum_column_column::kSum);
      TTRACE_CHECK(sum < sums.size(),
                   FormatError,
                   "a column belongs to sum ",
                   sum,
                   ", but there are ",
                   sums.size(),
                   " sums");
      sums[sum].by_column.push_back(table.f64(row, sum_column_column::kSquared));
    });
  }
}

std::vector<RoundedSum> read_sums(const Hdf5Input& file) {
  std::vector<RoundedSum> sums;
  if (!file.has_dataset(kSumTable)) {
    return sums;
  }
  const Table table(file, kSumTable, kSumColumns);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    parse_part(file, Row{row, "the sums"}, [&] {
      const std::uint64_t addends = table.u64(row, sum_column::kAddends);
      const double squared = table.f64(row, sum_column::kSquared);
      const bool is_unseen = squared == kUnseenAddend;
      TTRACE_CHECK(addends > 1 && addends <= std::numeric_limits<int>::max() &&
                       (squared >= 0.0 || std::isnan(squared) || is_unseen),  // FP16 overflows
                   FormatError,
                   "a sum has ",
                   addends,
                   " addends and the squared norm ",
                   squared,
                   ", which is impossible");
      sums.push_back({parse_tensor_id(table.text(row, sum_column::kId)),
                      parse_element_type(table.text(row, sum_column::kDtype)),
                      static_cast<int>(addends),
                      is_unseen ? std::nullopt : std::optional(squared)});
    });
  }
  read_sum_columns(file, sums);
  return sums;
}

std::vector<std::string> read_notes(const Hdf5Input& file) {
  const std::string text = file.text_attribute(kNotesAttribute);
  std::vector<std::string> notes;
  parse_part(file, "attribute 'notes'", [&] {
    notes = nlohmann::json::parse(text).get<std::vector<std::string>>();
  });
  return notes;
}

std::vector<NotSeen> read_not_seen(const Hdf5Input& file) {
  std::vector<NotSeen> facts;
  const bool has_any = file.has_attribute(kNotSeenAttribute);
  const std::string text = has_any ? file.text_attribute(kNotSeenAttribute) : "[]";
  parse_part(file, "attribute 'not_seen'", [&] {
    for (const auto& fact : nlohmann::json::parse(text)) {
      facts.push_back({parse_not_seen_kind(fact.at("kind").get<std::string>()),
                       fact.at("sentence").get<std::string>()});
    }
  });
  return facts;
}

}  // namespace

struct RankFile::Impl {
  explicit Impl(const Hdf5Input& file)
      : path(file.path()),
        layout(read_layout(file)),
        began(read_began(file)),
        run(file.has_attribute(kRunAttribute) ? file.text_attribute(kRunAttribute) : ""),
        has_digests(file.has_digests()),
        mapping(std::make_shared<const Mapping>(file)) {}

  void read_finished(const Hdf5Input& file) {
    if (!file.has_dataset(kIndexTable)) {
      file.throw_damaged("it has no index, so its writer did not finish it");
    }
    const Table index(file, kIndexTable, columns_of(kIndexColumns, began.has_value()));
    if (file.integer_attribute(kRecordsAttribute) != static_cast<std::int64_t>(index.rows())) {
      file.throw_damaged("the index has " + std::to_string(index.rows()) + " rows, not " +
                         std::to_string(file.integer_attribute(kRecordsAttribute)));
    }
    read_index(file, index);
    read_later_columns(file, kIndexTable);
    notes = read_notes(file);
    not_seen = read_not_seen(file);
    code = read_code(file);
    sums = read_sums(file);
    edges = read_edges(file, began.has_value());
  }

  // A writer that was stopped within commit() may have got as far as the final index.
  void read_unfinished(const Hdf5Input& file) {
    const char* table = file.has_dataset(kIndexTable) ? kIndexTable : kPartialIndexTable;
    if (!file.has_dataset(table)) {
      file.throw_damaged("its writer was stopped before it flushed anything");
    }
    read_index(file, Table(file, table, columns_of(kIndexColumns, began.has_value())));
    read_later_columns(file, table);
  }

  void read_later_columns(const Hdf5Input& file, const char* table) {
    read_samples(file, table, records);
    read_keep(file, table, records);
    const bool has_sketches = file.has_dataset(kSketchData);
    if (has_sketches) {
      file.check_digest(kSketchData, file.digest_at(locate(file, kSketchData)));
    }
    for (std::size_t row = 0; row < records.size(); ++row) {
      parse_part(file, Row{row, "the index"}, [&] { check_kept(records[row], has_sketches); });
    }
  }

  // Whether the file holds what the record says it does. Sketches come last, so that an unfinished
  // file has none.
  void check_kept(Record& record, bool has_sketches) {
    TTRACE_CHECK(record.keep != Keep::kBytes || record.bytes == bytes_needed(record),
                 FormatError,
                 "it has no bytes");
    if (record.sketch && !has_sketches) {
      record.sketch.reset();
    }
    if (record.sketch) {
      const std::uint64_t size =
          stored_size(sketch_grid(record.placement.logical_shape()), record.type);
      const std::uint64_t end = datasets.at(kSketchData).bytes;
      TTRACE_CHECK(record.sketch->offset <= end && size <= end - record.sketch->offset,
                   FormatError,
                   "its sketch lies outside of ",
                   kSketchData);
    }
  }

  void read_index(const Hdf5Input& file, const Table& index) {
    std::unordered_set<std::string_view> ids;  // an id has one spelling
    ids.reserve(index.rows());
    std::unordered_map<std::string_view, std::size_t> placements;  // in which record
    std::uint64_t elsewhere = 0;
    records.reserve(index.rows());
    for (std::size_t row = 0; row < index.rows(); ++row) {
      const Row place{row, "the index"};
      std::string_view placement = index.text(row, index_column::kPlacement);
      if (placement.starts_with(kPlacementElsewhere)) {
        placement = text_elsewhere(file, place, placement);
        elsewhere =
            placements.contains(placement) ? elsewhere : digest_of_text(placement, elsewhere);
      }
      parse_part(file, place, [&] {
        const auto [known, is_new] = placements.try_emplace(placement, records.size());
        records.push_back(
            parse_row(index, row, placement, is_new ? nullptr : &records[known->second]));
        if (began) {
          records.back().time = parse_time(index, row, index_column::kTime);
        }
        TTRACE_CHECK(ids.insert(index.text(row, index_column::kId)).second,
                     FormatError,
                     to_string(records.back().id),
                     " occurs twice");
      });
      const Record& record = records.back();
      if (record.bytes > 0) {
        const Extent extent = locate(file, record.dataset);
        parse_part(file, place, [&] { check_range(record, extent); });
      }
    }
    if (elsewhere != 0) {
      file.check_digest(kPlacementsDigest, elsewhere);
    }
  }

  // A long placement.
  std::string_view text_elsewhere(const Hdf5Input& file, const Row& place, std::string_view cell) {
    PlacementElsewhere where;
    parse_part(file, place, [&] { where = parse_elsewhere(cell); });
    const Extent extent = locate(file, where.dataset);
    parse_part(file, place, [&] {
      TTRACE_CHECK(where.offset <= extent.bytes && where.bytes <= extent.bytes - where.offset,
                   FormatError,
                   "placement '",
                   cell,
                   "' lies outside its dataset of ",
                   extent.bytes,
                   " bytes");
    });
    const std::byte* const text = mapping->begin() + extent.offset + where.offset;
    return {reinterpret_cast<const char*>(text), where.bytes};
  }

  // Looks a dataset up once, however many records it holds.
  Extent locate(const Hdf5Input& file, const std::string& name) {
    const auto known = datasets.find(name);
    if (known != datasets.end()) {
      return known->second;
    }
    const Hdf5Id dataset = file.open_dataset(name);
    return datasets.emplace(name, file.extent_of(dataset, name)).first->second;
  }

  // In this file's mapping, or in that of the one that lent the record.
  [[nodiscard]] std::span<const std::byte> dataset(const Record& record,
                                                   const std::string& name) const {
    const auto lent = borrowed.find(name);
    if (lent != borrowed.end()) {
      const auto& [lender, extent] = lent->second;
      return {lender->begin() + extent.offset, extent.bytes};
    }
    const auto found = datasets.find(name);
    TTRACE_CHECK(
        found != datasets.end(), InternalError, to_string(record.id), " is not a record of ", path);
    return {mapping->begin() + found->second.offset, found->second.bytes};
  }

  std::string path;
  Layout layout;
  std::optional<std::uint64_t> began;
  std::string run;
  bool has_digests = false;
  std::shared_ptr<const Mapping> mapping;
  std::vector<Record> records;
  std::vector<std::string> notes;
  std::vector<NotSeen> not_seen;
  CodeLines code;
  std::vector<RoundedSum> sums;
  std::vector<Edge> edges;
  std::unordered_map<std::string, Extent> datasets;
  std::unordered_map<std::string, std::pair<std::shared_ptr<const Mapping>, Extent>> borrowed;
};

RankFile::RankFile(const std::string& path) {
  const QuietHdf5 quiet;
  const Hdf5Input file(path);
  impl_ = std::make_unique<Impl>(file);
  impl_->read_finished(file);
}

RankFile::RankFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RankFile RankFile::unfinished(const std::string& path) {
  const QuietHdf5 quiet;
  TTRACE_CHECK(!is_being_written(path),
               FormatError,
               path,
               ": another process is writing this file; wait for it, or end it");
  const Hdf5Input file(path);
  auto impl = std::make_unique<Impl>(file);
  impl->read_unfinished(file);
  RankFile opened(std::move(impl));
  std::erase_if(opened.impl_->records,
                [&opened](const Record& record) { return !opened.intact(record); });
  return opened;
}

RankFile::~RankFile() = default;
RankFile::RankFile(RankFile&&) noexcept = default;
RankFile& RankFile::operator=(RankFile&&) noexcept = default;

const std::string& RankFile::path() const {
  return impl_->path;
}
const Layout& RankFile::layout() const {
  return impl_->layout;
}
std::optional<std::uint64_t> RankFile::began() const {
  return impl_->began;
}
const std::vector<Record>& RankFile::records() const {
  return impl_->records;
}
const std::vector<std::string>& RankFile::notes() const {
  return impl_->notes;
}
const std::vector<NotSeen>& RankFile::not_seen() const {
  return impl_->not_seen;
}
const CodeLines& RankFile::code() const {
  return impl_->code;
}
const std::vector<Edge>& RankFile::edges() const {
  return impl_->edges;
}
const std::vector<RoundedSum>& RankFile::sums() const {
  return impl_->sums;
}

std::span<const std::byte> RankFile::bytes(const Record& record) const {
  if (record.bytes == 0) {
    return {};
  }
  const std::span<const std::byte> dataset = impl_->dataset(record, record.dataset);
  return dataset.subspan(record.offset, record.bytes);
}

std::optional<Sketch> RankFile::sketch(const Record& record) const {
  if (!record.sketch) {
    return std::nullopt;
  }
  const SketchGrid grid = sketch_grid(record.placement.logical_shape());
  return stored_sketch(grid,
                       record.type,
                       impl_->dataset(record, record.sketch->dataset)
                           .subspan(record.sketch->offset, stored_size(grid, record.type)));
}

Record RankFile::borrow(const RankFile& lender, Record record) {
  const auto lend = [&](std::string& dataset) {
    const Extent extent = lender.impl_->datasets.at(dataset);
    dataset = std::string(kBorrowed) + lender.path() + dataset;
    impl_->borrowed.try_emplace(dataset, lender.impl_->mapping, extent);
  };
  if (record.bytes > 0) {
    lend(record.dataset);
  }
  if (record.sketch) {
    lend(record.sketch->dataset);
  }
  return record;
}

void RankFile::settle(std::size_t index, Placement placement) {
  impl_->records.at(index).placement = std::move(placement);
}

void RankFile::set_records(std::vector<Record> records) {
  impl_->records = std::move(records);
}

void RankFile::set_links(std::vector<Edge> edges, std::vector<RoundedSum> sums) {
  impl_->edges = std::move(edges);
  impl_->sums = std::move(sums);
}

bool RankFile::intact(const Record& record) const {
  // What is kept instead of bytes has a digest of its own, which is checked when the file is
  // opened.
  return record.keep != Keep::kBytes || digest_of_bytes(bytes(record)) == record.digest;
}

void RankFile::require_intact(const Record& record) const {
  TTRACE_CHECK(intact(record),
               FormatError,
               impl_->path,
               ": the bytes of ",
               to_string(record.id),
               " have changed since they were written: their digest differs from the index; remove "
               "the trace and run the pass again");
}

bool RankFile::has_digests() const {
  return impl_->has_digests;
}

const std::string& RankFile::run() const {
  return impl_->run;
}

}  // namespace ttrace
