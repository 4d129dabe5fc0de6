// The names that the programs of a comparison use for the parts of their model and the axes of
// their layout.
//
// Thread-safety: immutable; read from any number of threads.
#pragma once

#include "trace/base/role.h"
#include "trace/file/manifest.h"

#include <ttrace/layout.h>
#include <ttrace/tensor_id.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// "decoder.layers.", 2, ".mlp" of "decoder.layers.2.mlp".
struct NumberedPath {
  std::string before;
  std::int64_t number = 0;
  std::string after;
};

class ModelVocabulary {
 public:
  // The usual names.
  ModelVocabulary();
  // `roles` of a manifest: patterns by role, separated by spaces. The other roles have the usual
  // names. A role that this version does not know is ignored.
  explicit ModelVocabulary(const Section& roles);

  // Whether any name can have the role.
  [[nodiscard]] bool has(Role role) const;
  // Whether `name`, the name of a module, a record or an axis, has the role.
  [[nodiscard]] bool is(Role role, std::string_view name) const;
  // Whether `id` is a scalar that has the role.
  [[nodiscard]] bool is_scalar(Role role, const TensorId& id) const {
    return id.kind == Kind::kScalar && is(role, id.path);
  }
  // Whether a module above `path` has the role.
  [[nodiscard]] bool is_below(Role role, std::string_view path) const;
  // The first number in `path` that follows a module of the role.
  [[nodiscard]] std::optional<NumberedPath> numbered(Role role, std::string_view path) const;
  // Whether the paths differ only in that number.
  [[nodiscard]] bool differ_in_number(Role role,
                                      std::string_view left,
                                      std::string_view right) const;
  // Whether the ids differ only in that number in their paths.
  [[nodiscard]] bool differ_in_number(Role role, const TensorId& left, const TensorId& right) const;
  // Size of the layout's largest axis of the role; 1 if it has none.
  [[nodiscard]] int axis_size(Role role, const Layout& layout) const;

 private:
  std::array<std::string, kRoles.size()> patterns_;  // by role
};

// The heads of attention modules.
struct Heads {
  std::int64_t size = 0;  // indices of the last dimension that make up a head; 0: not known
  ModelVocabulary vocabulary = {};

  // 0 if the tensor has no heads.
  [[nodiscard]] std::int64_t size_in(const TensorId& id) const {
    return vocabulary.is(Role::kAttention, id.path) ? size : 0;
  }
};

}  // namespace ttrace
