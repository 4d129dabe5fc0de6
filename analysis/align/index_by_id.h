// Finds what has a tensor's id, such as a match or a verdict, by that id.
//
// Thread-safety: immutable after construction.
#pragma once

#include "trace/base/tensor_id_hash.h"

#include <ttrace/tensor_id.h>

#include <functional>
#include <span>
#include <unordered_map>

namespace ttrace {

template <class Item>
class IndexById {
 public:
  // Keeps references to the items and to their ids.
  explicit IndexById(std::span<Item> items) {
    items_.reserve(items.size());
    for (Item& item : items) {
      items_.emplace(std::cref(item.id), &item);
    }
  }
  // The first of several; null if there is none.
  [[nodiscard]] Item* find(const TensorId& id) const {
    const auto found = items_.find(id);
    return found == items_.end() ? nullptr : found->second;
  }

 private:
  using IdReference = std::reference_wrapper<const TensorId>;
  std::unordered_map<IdReference, Item*, TensorIdHash, std::equal_to<TensorId>> items_;
};

}  // namespace ttrace
