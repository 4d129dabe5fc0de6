// What an entry of an annotation file can say, by key. <ttrace/annotations.h> explains the keys.
//
// Thread-safety: constants.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ttrace {

struct AnnotationField {
  std::string_view name;
  std::string_view otherwise = {};  // the field that holds where an entry has none of this name
};

inline constexpr std::array<AnnotationField, 8> kAnnotationFields{{{"value"},
                                                                   {"data", "value"},
                                                                   {"grad", "value"},
                                                                   {"inputs"},
                                                                   {"input_grads", "inputs"},
                                                                   {"routing", "value"},
                                                                   {"scales"},
                                                                   {"operands"}}};

// Null for a name that is no field's.
[[nodiscard]] constexpr const AnnotationField* find_annotation_field(std::string_view name) {
  const auto* const found = std::ranges::find(kAnnotationFields, name, &AnnotationField::name);
  return found == kAnnotationFields.end() ? nullptr : found;
}

}  // namespace ttrace
