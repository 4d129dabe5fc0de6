// A rank's addend of a sum over ranks, on the way to one of its records.
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/export.h>
#include <ttrace/tensor_id.h>

namespace ttrace {

// Its part was rounded to `type` before the sum, and the sum again after every addend.
struct TTRACE_API RoundedSum {
  TensorId id;  // of the record that the sum went into
  ElementType type = ElementType::kF32;
  int addends = 0;       // ranks
  double squared = 0.0;  // ||x||^2 of this rank's part x

  bool operator==(const RoundedSum&) const = default;
};

}  // namespace ttrace
