#include "analysis/align/activation_type.h"

#include <cstddef>
#include <map>

namespace ttrace {

std::optional<ElementType> activation_type(const Trace& trace) {
  std::map<ElementType, std::size_t> outputs;
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kOutput && is_floating(record.type)) {
        ++outputs[record.type];
      }
    }
  }
  std::optional<ElementType> most;
  for (const auto& [type, count] : outputs) {
    const std::size_t so_far = most ? outputs[*most] : 0;
    const bool is_narrower = most && element_size(type) < element_size(*most);
    if (count > so_far || (count == so_far && is_narrower)) {
      most = type;
    }
  }
  return most;
}

}  // namespace ttrace
