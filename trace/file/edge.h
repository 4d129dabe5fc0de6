// An edge of the graph that a traced step ran: the tensor that a module took.
#pragma once

#include <ttrace/tensor_id.h>

#include <cstdint>

namespace ttrace {

// A module was given the very memory that another one had returned, unwritten since: no record of
// the input is kept, for it is that output.
struct Edge {
  TensorId consumer;        // kind input: path, slot and call of the module that takes it
  TensorId producer;        // kind output, or received from another stage
  std::uint64_t order = 0;  // among the records of the step and rank; see Record::order
  std::uint64_t time = 0;   // see Record::time

  bool operator==(const Edge&) const = default;
};

}  // namespace ttrace
