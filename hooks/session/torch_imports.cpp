#include "hooks/session/torch_imports.h"

#include "hooks/base/tensor_access.h"
#include "hooks/session/imported_trace.h"

#include <ttrace/error.h>

#include <torch/custom_class.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

using c10::intrusive_ptr;
using Integers = std::vector<std::int64_t>;
// (name, size, coordinate, follows) of an axis: see Layout.
using AxisTuple = std::tuple<std::string, std::int64_t, std::int64_t, std::string>;

std::vector<Layout> layouts_of(const std::vector<std::vector<AxisTuple>>& ranks) {
  std::vector<Layout> layouts(ranks.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    layouts[rank].rank = static_cast<int>(rank);
    layouts[rank].world_size = static_cast<int>(ranks.size());
    for (const auto& [name, size, coordinate, follows] : ranks[rank]) {
      layouts[rank].add(name, static_cast<int>(size), static_cast<int>(coordinate), follows);
    }
  }
  return layouts;
}

struct ImportedTraceObject : torch::CustomClassHolder {
  // `annotations` is the text of an annotation file, which messages call `file`.
  ImportedTraceObject(const std::string& directory,
                      const std::string& origin,
                      const std::vector<std::vector<AxisTuple>>& ranks,
                      const std::string& annotations,
                      const std::string& file)
      : trace(directory, origin, layouts_of(ranks), Annotations::parse(annotations, file)) {}

  // `start` and `logical_shape` are those of the box; no `logical_shape` at all: there is none.
  void append(const std::string& id,
              const at::Tensor& tensor,
              const Integers& start,
              const std::optional<Integers>& logical_shape) {
    const auto type = element_type_of(tensor);
    TTRACE_CHECK(type.has_value(),
                 UsageError,
                 id,
                 " is of type ",
                 tensor.scalar_type(),
                 ", which a trace cannot hold; convert it");
    const std::string reason = unreadable(tensor);
    TTRACE_CHECK(reason.empty(), UsageError, id, " ", reason, ", so it cannot be imported");
    ImportedTensor imported{.id = parse_tensor_id(id), .type = *type, .shape = shape_of(tensor)};
    if (logical_shape) {
      imported.box = ImportedBox{start, *logical_shape};
    }
    const at::Tensor whole = tensor.contiguous();
    trace.append(imported,
                 {static_cast<const std::byte*>(whole.const_data_ptr()),
                  static_cast<std::size_t>(whole.nbytes())});
  }

  ImportedTrace trace;
};

using ImportedTracePtr = intrusive_ptr<ImportedTraceObject>;

}  // namespace

void register_imports(torch::Library& library) {
  library.class_<ImportedTraceObject>("ImportedTrace")
      .def(torch::init<std::string,
                       std::string,
                       std::vector<std::vector<AxisTuple>>,
                       std::string,
                       std::string>())
      .def("derive",
           [](const ImportedTracePtr& self,
              const std::string& path,
              const std::string& kind,
              std::int64_t slot,
              const std::string& dims) {
             self->trace.derive(path, parse_kind(kind), static_cast<int>(slot), dims);
           })
      .def("begin",
           [](const ImportedTracePtr& self, std::int64_t step, std::int64_t rank) {
             self->trace.begin(step, static_cast<int>(rank));
           })
      .def("append", &ImportedTraceObject::append)
      .def("note",
           [](const ImportedTracePtr& self, const std::string& sentence) {
             self->trace.note(sentence);
           })
      .def("called_at",
           [](const ImportedTracePtr& self, const std::string& path, const std::string& line) {
             self->trace.code(CodeRole::kCall, path, line);
           })
      .def("commit", [](const ImportedTracePtr& self, const std::string& precision) {
        self->trace.commit(precision);
      });
}

}  // namespace ttrace
