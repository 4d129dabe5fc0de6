// Where in one tensor the error lies, for somebody who wants to see it rather than have it judged.
//
// Thread-safety: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

// One rank's own part, next to the same elements of the reference.
struct RankError {
  int rank = 0;
  std::vector<std::pair<std::string, int>> coordinates;  // by axis of more than one rank
  double error = 0.0;                                    // ||c - r|| over the part
  double reference_norm = 0.0;                           // ||r|| over it
  std::int64_t elements = 0;
  bool is_addend = false;  // of a sum over ranks, so that only the sum has a counterpart
};

// A row, an index of a dimension, or a head.
struct PartError {
  std::string where;  // "row [3, 1]", "index 17 of dimension 0", "head 3"
  double error = 0.0;
  double reference_norm = 0.0;
  bool is_head = false;
};

struct CloseLook {
  std::vector<RankError> ranks;  // that hold some of the tensor, ascending
  // The parts of largest error: of heads, of every dimension, and of rows, at most 8, largest error
  // first. Heads where the program says how large they are, and the tensor is an attention's.
  std::vector<PartError> parts;
};

}  // namespace ttrace
