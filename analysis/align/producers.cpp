#include "analysis/align/producers.h"

namespace ttrace {

RecordedProducers::RecordedProducers(const Trace& trace) {
  for_each_edge(trace, [&](int rank, const Edge& edge) {
    by_input_[edge.consumer].emplace(rank, edge.producer);
  });
}

const std::map<int, TensorId>& RecordedProducers::of(const TensorId& input) const {
  static const std::map<int, TensorId> kNone;
  const auto found = by_input_.find(input);
  return found == by_input_.end() ? kNone : found->second;
}

const TensorId* RecordedProducers::of(const TensorId& input, int rank) const {
  const std::map<int, TensorId>& producers = of(input);
  const auto found = producers.find(rank);
  return found == producers.end() ? nullptr : &found->second;
}

}  // namespace ttrace
