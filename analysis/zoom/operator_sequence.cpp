#include "analysis/zoom/operator_sequence.h"

#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/base/zoom_target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace ttrace {
namespace {

ListedOperator listed(OperatorCall call,
                      const std::unordered_map<TensorId, const Record*, TensorIdHash>& records) {
  ListedOperator result;
  result.base = operator_path("", call.name).substr(1);
  const auto found = call.results.empty() ? records.end() : records.find(call.results.front());
  if (found != records.end()) {
    const Record& record = *found->second;
    result.shape = record.placement.logical_shape();
    const auto count = static_cast<double>(element_count(record.shape));
    result.size = count > 0.0 ? record.norm / std::sqrt(count) : 0.0;
  }
  result.call = std::move(call);
  return result;
}

}  // namespace

std::vector<OperatorSequence> read_operators(const Trace& trace) {
  std::vector<OperatorSequence> sequences;
  for (const RankFile& file : trace.files()) {
    std::unordered_map<TensorId, const Record*, TensorIdHash> records;
    const Record* list = nullptr;
    for (const Record& record : file.records()) {
      if (record.id.kind == Kind::kOperators) {
        list = &record;
      } else if (is_of_operator(record.id.kind)) {
        records.emplace(record.id, &record);
      }
    }
    if (list == nullptr) {
      continue;
    }
    OperatorSequence sequence{file.layout().rank, {}};
    for (OperatorCall& call : parse_operator_calls(file.text(*list))) {
      sequence.operators.push_back(listed(std::move(call), records));
    }
    if (!sequence.operators.empty()) {
      sequences.push_back(std::move(sequence));
    }
  }
  std::ranges::sort(sequences, {}, &OperatorSequence::rank);
  return sequences;
}

OperatorSources sources_of(const OperatorSequence& sequence,
                           std::size_t position,
                           const std::function<bool(std::size_t)>& is_paired) {
  OperatorSources sources;
  std::vector<std::size_t> open = sequence.operators[position].call.made_by;
  while (!open.empty()) {
    const std::size_t maker = open.back();
    open.pop_back();
    if (is_paired(maker)) {
      sources.paired.insert(maker);
    } else if (sources.unpaired.insert(maker).second) {
      const auto& makers = sequence.operators[maker].call.made_by;
      open.insert(open.end(), makers.begin(), makers.end());
    }
  }
  return sources;
}

bool only_copies(const ListedOperator& listed) {
  constexpr std::array<std::string_view, 4> kCopies = {"_to_copy", "copy", "clone", "lift_fresh"};
  return !listed.has_result() || listed.call.is_view ||
         std::ranges::find(kCopies, listed.base) != kCopies.end();
}

bool sums_over_ranks(const ListedOperator& listed) {
  return listed.call.communicates && listed.base.find("reduce") != std::string::npos;
}

}  // namespace ttrace
