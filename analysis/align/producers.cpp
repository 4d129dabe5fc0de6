#include "analysis/align/producers.h"

namespace ttrace {

RecordedProducers::RecordedProducers(const Trace& trace) {
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      for (const Edge& edge : file.edges()) {
        by_input_[edge.consumer].emplace(file.layout().rank, edge.producer);
      }
    }
  }
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
