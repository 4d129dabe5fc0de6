#include "analysis/zoom/operator_sequence.h"

#include "trace/base/tensor_id_hash.h"
#include "trace/base/zoom_target.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

namespace ttrace {
namespace {

std::string_view text_of(const RankFile& file, const Record& record) {
  const auto bytes = file.bytes(record);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

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
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      std::unordered_map<TensorId, const Record*, TensorIdHash> records;
      const Record* list = nullptr;
      for (const Record& record : file.records()) {
        if (record.id.kind == Kind::kOperators) {
          list = &record;
        } else if (record.id.kind == Kind::kOperator || record.id.kind == Kind::kOperatorGrad) {
          records.emplace(record.id, &record);
        }
      }
      if (list == nullptr) {
        continue;
      }
      OperatorSequence sequence{file.layout().rank, {}};
      for (OperatorCall& call : parse_operator_calls(text_of(file, *list))) {
        sequence.operators.push_back(listed(std::move(call), records));
      }
      if (!sequence.operators.empty()) {
        sequences.push_back(std::move(sequence));
      }
    }
  }
  std::ranges::sort(sequences, {}, &OperatorSequence::rank);
  return sequences;
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
