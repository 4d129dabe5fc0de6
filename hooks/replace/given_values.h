// The values that replace a program's own, once those are recorded. The program then computes each
// tensor from known values, with only the operators since the last record, so it inherits no error
// from earlier ones.
//
// Thread-safety: use under the lock of Capture. Constructed before the writer thread exists,
// because implementations read HDF5 files; afterwards only their mappings.
#pragma once

#include "hooks/base/tensor_copy.h"

#include <ttrace/placement.h>
#include <ttrace/tensor_id.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ttrace {

class GivenValues {
 public:
  GivenValues() = default;
  virtual ~GivenValues() = default;
  GivenValues(const GivenValues&) = delete;  // used through its base
  GivenValues& operator=(const GivenValues&) = delete;

  // The values that replace `own`, which lies at `placement`. Nothing: the program keeps its own.
  [[nodiscard]] virtual std::optional<std::vector<std::byte>> value(
      const TensorId& id, const Placement& placement, const TensorCopy& own) const = 0;
  // Whether a tensor of this kind was recorded where the values come from.
  [[nodiscard]] virtual bool holds(Kind) const { return false; }
  // Whether a floating-point tensor without given values deserves a note.
  [[nodiscard]] virtual bool should_have_all() const = 0;
};

}  // namespace ttrace
