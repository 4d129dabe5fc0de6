// A rank's addend of a sum over ranks, on the way to one of its records.
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/tensor_id.h>

#include <optional>
#include <vector>

namespace ttrace {

// Its part was rounded to `type` before the sum, and the sum again after every addend.
struct RoundedSum {
  TensorId id;  // of the record that the sum went into
  ElementType type = ElementType::kF32;
  int addends = 0;  // ranks
  // ||x||^2 of this rank's part x; nothing if the program only knows that there was a sum.
  std::optional<double> squared = 0.0;
  // Its part of each index of x's last dimension; empty where x is a vector, or nobody saw it.
  std::vector<double> by_column = {};

  bool operator==(const RoundedSum&) const = default;
};

}  // namespace ttrace
