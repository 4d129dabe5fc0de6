// What the reference does not reproduce by itself. The self-check runs it a second time without
// noise; whatever differs then was summed in another order (atomics, autotuned kernels).
//
// Thread-safety: immutable after construction.
#pragma once

#include "analysis/align/matching.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/file/noise_table.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

namespace ttrace {

class Irreproducible {
 public:
  // Nobody ran the reference twice: everything counts as reproducible.
  Irreproducible() = default;
  // `matches` are in the order in which the reference ran.
  Irreproducible(const NoisePass& self_check, std::span<const Match> matches);

  // How far the second run was off; null where it was equal.
  [[nodiscard]] const NoiseRow* find(const TensorId& id) const;
  // Whether the reference computed this at or after the first tensor that it did not reproduce.
  // What comes after may depend on it, although one run more did not show that.
  [[nodiscard]] bool reaches(const Match& match) const;
  // What a report says of the self-check.
  [[nodiscard]] std::string sentence() const;

 private:
  std::unordered_map<TensorId, NoiseRow, TensorIdHash> rows_;
  std::size_t compared_ = 0;
  std::optional<TensorId> first_;
  std::pair<std::int64_t, std::uint64_t> place_;  // step and order of the first
  double error_ = 0.0;                            // of the first, relative to its norm
};

}  // namespace ttrace
