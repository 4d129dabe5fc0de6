#include "analysis/findings/unmatched_name.h"

#include "analysis/findings/wording.h"

namespace ttrace {

std::string to_string(const UnmatchedName& name) {
  std::string text = name.path + " " + shape_text(name.shape) + " (";
  for (const Kind kind : name.kinds) {
    text.append(name_of(kind)).append(", ");
  }
  text.resize(text.size() - 2);
  return text + "; " + counted(static_cast<std::int64_t>(name.tensors), "tensor", "tensors") + ")";
}

std::string nearest_text(const UnmatchedName& name) {
  std::string text;
  for (const NearName& near : name.nearest) {
    text += (text.empty() ? "" : ", ") + near.path + " " + shape_text(near.shape);
  }
  return text;
}

}  // namespace ttrace
