#include "analysis/align/activation_type.h"

#include "trace/base/precision.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace ttrace {
namespace {

std::map<ElementType, std::size_t> count_outputs(const RankFile& file) {
  std::map<ElementType, std::size_t> counts;
  for (const Record& record : file.records()) {
    if (record.id.kind == Kind::kOutput && is_floating(record.type)) {
      ++counts[record.type];
    }
  }
  return counts;
}

}  // namespace

std::string other_activation_type(const Trace& trace) {
  const Precision* const declared = find_precision(trace.manifest().precision);
  if (declared == nullptr) {
    return "";
  }
  for (const StepTrace& step : trace.steps()) {
    for (const RankFile& file : step.ranks) {
      const auto counts = count_outputs(file);
      if (!counts.empty()) {
        const auto most = std::ranges::max_element(
            counts, {}, [](const auto& type_and_count) { return type_and_count.second; });
        return most->first == declared->stored ? "" : std::string(name_of(most->first));
      }
    }
  }
  return "";
}

}  // namespace ttrace
