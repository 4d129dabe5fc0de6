// A trace that is made of another tool's files instead of a run.
//
// The folder is written under a temporary name next to it and renamed by commit(), so that what has
// its final name is whole.
//
// Thread-safety: one thread at a time.
#pragma once

#include "trace/file/code_lines.h"
#include "trace/file/trace_writer.h"

#include <ttrace/annotations.h>
#include <ttrace/element_type.h>
#include <ttrace/layout.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// Where a rank's tensor lies in the logical one, both with one entry per dimension.
struct ImportedBox {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> logical_shape;
};

struct ImportedTensor {
  TensorId id;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;
  std::optional<ImportedBox> box = {};  // absent: the annotations say, or else it is whole
};

class ImportedTrace {
 public:
  // `origin` names the foreign format for the manifest, `ranks` has the layout of every rank.
  // Throws UsageError if `directory` already holds something or cannot be made.
  ImportedTrace(std::string directory,
                std::string origin,
                std::vector<Layout> ranks,
                Annotations annotations);
  ~ImportedTrace();                              // without commit(), nothing is left
  ImportedTrace(const ImportedTrace&) = delete;  // owns a folder
  ImportedTrace& operator=(const ImportedTrace&) = delete;

  // What the foreign file says of one tensor, see Annotations::derive(). Throws UsageError.
  void derive(const std::string& path, Kind kind, int slot, const std::string& dims);
  // All that follows belongs to this step of this rank. Requires: no earlier call had both.
  void begin(std::int64_t step, int rank);
  // In the order of execution. Throws UsageError where the box or the annotation does not fit the
  // shape, and where the rank has that id already.
  void append(const ImportedTensor& tensor, std::span<const std::byte> bytes);
  void note(const std::string& sentence);
  void code(CodeRole role, const std::string& path, const std::string& text);
  // Writes empty files for the ranks that had nothing, and the manifest; then the trace has its
  // name. `precision` is what the program computed in. Throws UsageError and FormatError.
  void commit(const std::string& precision);

 private:
  void end_file();
  [[nodiscard]] Placement placement_of(const ImportedTensor& tensor) const;
  [[nodiscard]] bool is_undeclared(const ImportedTensor& tensor) const;

  std::string directory_;
  std::string temporary_;  // empty after commit()
  std::string origin_;
  std::vector<Layout> ranks_;
  Annotations annotations_;
  std::set<std::pair<std::int64_t, int>> begun_;
  std::unique_ptr<TraceWriter> writer_;  // of the last begin()
  const Layout* layout_ = nullptr;       // of the same
  std::int64_t step_ = 0;                // of the same
  std::uint64_t order_ = 0;
  std::set<TensorId> ids_;  // of the same file
};

}  // namespace ttrace
