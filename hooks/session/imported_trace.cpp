#include "hooks/session/imported_trace.h"

#include "trace/base/kind.h"
#include "trace/base/version.h"
#include "trace/file/manifest.h"

#include <ttrace/error.h>

#include <filesystem>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') {
    path.pop_back();
  }
  return path;
}

// A folder that nobody else has, so that what a killed import left is in nobody's way.
std::string make_temporary(const std::string& directory) {
  std::error_code error;
  fs::create_directories(fs::absolute(directory).parent_path(), error);
  for (int number = 0;; ++number) {
    const std::string name = directory + "." + std::to_string(number) + ".tmp";
    if (fs::create_directory(name, error)) {
      return name;
    }
    TTRACE_CHECK(!error, UsageError, "cannot create the folder ", name, ": ", error.message());
  }
}

Placement boxed(const ImportedTensor& tensor) {
  const ImportedBox& box = *tensor.box;
  Placement placement;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::int64_t extent = tensor.shape[i];
    DimPlacement dim{.local_size = extent, .logical_size = box.logical_shape[i], .segments = {}};
    if (extent > 0) {
      dim.segments.push_back({.local = 0, .logical = box.start[i], .extent = extent});
    }
    placement.dims.push_back(std::move(dim));
  }
  validate(placement);
  return placement;
}

}  // namespace

ImportedTrace::ImportedTrace(std::string directory,
                             std::string origin,
                             std::vector<Layout> ranks,
                             Annotations annotations)
    : directory_(without_last_slashes(std::move(directory))),
      origin_(std::move(origin)),
      ranks_(std::move(ranks)),
      annotations_(std::move(annotations)) {
  TTRACE_CHECK(!ranks_.empty(), UsageError, "an imported trace needs at least one rank");
  require_free_folder(directory_);
  temporary_ = make_temporary(directory_);
}

ImportedTrace::~ImportedTrace() {
  writer_.reset();
  if (!temporary_.empty()) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
}

void ImportedTrace::derive(const std::string& path, Kind kind, int slot, const std::string& dims) {
  const std::string_view field = annotation_field(kind);
  annotations_.derive(path, field.empty() ? "value" : field, slot, dims);
}

void ImportedTrace::end_file() {
  if (writer_ != nullptr) {
    writer_->commit();
    writer_.reset();
  }
}

void ImportedTrace::begin(std::int64_t step, int rank) {
  TTRACE_CHECK(rank >= 0 && rank < std::ssize(ranks_),
               UsageError,
               "a file belongs to rank ",
               rank,
               ", but the ranks go from 0 to ",
               ranks_.size() - 1);
  TTRACE_CHECK(begun_.emplace(step, rank).second,
               UsageError,
               "step ",
               step,
               " of rank ",
               rank,
               " was begun twice; hand over its tensors in one go");
  end_file();
  step_ = step;
  layout_ = &ranks_[static_cast<std::size_t>(rank)];
  writer_ = std::make_unique<TraceWriter>(step_file(temporary_, step, rank), *layout_);
  order_ = 0;
  ids_.clear();
}

Placement ImportedTrace::placement_of(const ImportedTensor& tensor) const {
  const TensorId& id = tensor.id;
  if (!tensor.box) {
    if (!is_placed(id.kind)) {
      return whole(tensor.shape);
    }
    try {
      return annotations_.placement(id.kind, id.path, id.slot, tensor.shape, *layout_);
    } catch (const Error& error) {
      TTRACE_THROW(UsageError, to_string(id), " does not fit its annotation: ", error.message());
    }
  }
  TTRACE_CHECK(tensor.box->start.size() == tensor.shape.size() &&
                   tensor.box->logical_shape.size() == tensor.shape.size(),
               UsageError,
               to_string(id),
               " has ",
               tensor.shape.size(),
               " dimensions, but its box has ",
               tensor.box->start.size());
  try {
    return boxed(tensor);
  } catch (const Error& error) {
    TTRACE_THROW(UsageError, to_string(id), " does not fit its box: ", error.message());
  }
}

// As of a run: what nobody says is a guess, and a comparison may ask the values.
bool ImportedTrace::is_undeclared(const ImportedTensor& tensor) const {
  if (ranks_.size() == 1 || tensor.shape.empty() || tensor.box || !is_placed(tensor.id.kind)) {
    return false;
  }
  const auto dims = annotations_.find(tensor.id.kind, tensor.id.path, tensor.id.slot);
  return !dims || dims->is_guess;
}

void ImportedTrace::append(const ImportedTensor& tensor, std::span<const std::byte> bytes) {
  TTRACE_CHECK(writer_ != nullptr && tensor.id.step == step_,
               UsageError,
               to_string(tensor.id),
               " belongs to a step that was not begun");
  TTRACE_CHECK(ids_.insert(tensor.id).second,
               UsageError,
               "rank ",
               layout_->rank,
               " has two tensors that become ",
               to_string(tensor.id),
               "; give them different names");
  Record record;
  record.id = tensor.id;
  record.type = tensor.type;
  record.shape = tensor.shape;
  record.placement = placement_of(tensor);
  record.undeclared = is_undeclared(tensor);
  record.order = order_++;
  writer_->append(std::move(record), bytes);
}

void ImportedTrace::note(const std::string& sentence) {
  TTRACE_CHECK(writer_ != nullptr, UsageError, "a note belongs to a step that was not begun");
  writer_->note(sentence);
}

void ImportedTrace::code(CodeRole role, const std::string& path, const std::string& text) {
  TTRACE_CHECK(writer_ != nullptr, UsageError, "a line belongs to a step that was not begun");
  writer_->code(role, path, text);
}

void ImportedTrace::commit(const std::string& precision) {
  end_file();
  Manifest manifest;
  manifest.pass = kImportedPass;
  manifest.world_size = static_cast<int>(ranks_.size());
  for (const auto& [step, rank] : begun_) {
    if (manifest.steps.empty() || manifest.steps.back() != step) {
      manifest.steps.push_back(step);
    }
  }
  for (const std::int64_t step : manifest.steps) {
    for (const Layout& layout : ranks_) {
      if (!begun_.contains({step, layout.rank})) {
        TraceWriter(step_file(temporary_, step, layout.rank), layout).commit();
      }
    }
  }
  manifest.precision = precision;
  for (const Axis& axis : ranks_.front().axes) {
    manifest.layout[axis.name] = std::to_string(axis.size);
  }
  manifest.roles = annotations_.roles();
  manifest.imported_from = origin_;
  manifest.versions = {{"ttrace", std::string(own_version())}};
  write_manifest(temporary_, manifest);
  require_free_folder(directory_);
  std::error_code error;
  fs::rename(temporary_, directory_, error);
  TTRACE_CHECK(
      !error, FormatError, "cannot rename ", temporary_, " to ", directory_, ": ", error.message());
  temporary_.clear();
}

}  // namespace ttrace
