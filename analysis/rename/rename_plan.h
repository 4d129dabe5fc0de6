// Decides which tensors of a trace become which tensors of the renamed one.
//
// Thread-safety: one thread at a time.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/rename/rename_map.h"
#include "trace/base/tensor_id_hash.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ttrace {

// Some tensors that become others, all at once.
struct Conversion {
  Counterparts names;
  std::vector<const Match*> sources;  // in the order of the parts
  std::vector<TensorId> targets;
  bool shared = false;  // one tensor under several names, instead of its parts
  // Shapes of what was read, from which renamed noise follows.
  std::vector<std::vector<std::int64_t>> source_shapes;
};

// Step and execution order of the last source.
[[nodiscard]] std::pair<std::int64_t, std::uint64_t> order_of(const Conversion& conversion);

// The conversions, in the order in which they are complete.
class RenamePlan {
 public:
  // Keeps a reference to the map.
  RenamePlan(const RenameMap& map, Names from);

  // Keeps a pointer to the tensor. Throws UsageError if two tensors get one name.
  void add(const Match& tensor);

  // Parts whose others never came keep their names; `notes` says so.
  [[nodiscard]] std::vector<Conversion> result(std::vector<std::string>& notes);

  // Tensors that the map leaves out.
  [[nodiscard]] std::size_t only_here() const { return only_here_; }
  // Entries that matched a tensor, by their numbers.
  [[nodiscard]] const std::vector<bool>& used() const { return used_; }

 private:
  void add_part(const Match& tensor, Counterparts names);
  void finish(Conversion conversion);

  const RenameMap& map_;
  Names from_;
  std::vector<bool> used_;
  std::size_t only_here_ = 0;
  std::map<TensorId, Conversion> open_;  // by target
  std::vector<Conversion> done_;
  std::unordered_map<TensorId, TensorId, TensorIdHash> targets_;  // whence
};

}  // namespace ttrace
