// What fed the modules of a trace: the outputs whose very memory they took, from the recorded
// edges.
//
// Thread-safety: immutable after construction; a free function without shared state.
#pragma once

#include "trace/base/tensor_id_hash.h"
#include "trace/file/edge.h"
#include "trace/file/trace_reader.h"

#include <ttrace/tensor_id.h>

#include <map>
#include <unordered_map>

namespace ttrace {

// Calls use(rank, edge) for every recorded edge.
template <class Use>
void for_each_edge(const Trace& trace, Use&& use) {
  for (const RankFile& file : trace.files()) {
    for (const Edge& edge : file.edges()) {
      use(file.layout().rank, edge);
    }
  }
}

class RecordedProducers {
 public:
  explicit RecordedProducers(const Trace& trace);

  // What each rank's module took as `input`, by rank; empty where no edge says it. It is an output,
  // or what another stage sent.
  [[nodiscard]] const std::map<int, TensorId>& of(const TensorId& input) const;
  // What the module of `rank` took as `input`; null where no edge says it.
  [[nodiscard]] const TensorId* of(const TensorId& input, int rank) const;

  [[nodiscard]] auto begin() const { return by_input_.begin(); }
  [[nodiscard]] auto end() const { return by_input_.end(); }

 private:
  std::unordered_map<TensorId, std::map<int, TensorId>, TensorIdHash> by_input_;
};

}  // namespace ttrace
