#include "trace/merge/absent_addends.h"

#include "trace/base/kind.h"
#include "trace/merge/held_record.h"
#include "trace/place/addends.h"

#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

bool is_gradient_of_parameter(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

// The paths of all parameters of which a rank recorded anything.
std::set<std::string> parameters_of(const RankFile& file) {
  std::set<std::string> paths;
  for (const Record& record : file.records()) {
    if (family_of(record.id.kind) == KindFamily::kParameter ||
        is_gradient_of_parameter(record.id.kind)) {
      paths.insert(record.id.path);
    }
  }
  return paths;
}

// The numbers of a sum's addends that ranks recorded.
std::set<int> numbers_of(const std::vector<HeldRecord>& parts) {
  std::set<int> numbers;
  for (const HeldRecord& part : parts) {
    numbers.insert(part.placement().partial_index);
  }
  return numbers;
}

void renumber(const std::vector<HeldRecord>& parts, const std::set<int>& present) {
  for (const HeldRecord& part : parts) {
    Placement placement = part.placement();
    placement.partial_index =
        static_cast<int>(std::distance(present.begin(), present.find(placement.partial_index)));
    placement.partial_count = static_cast<int>(present.size());
    part.file->settle(part.index, std::move(placement));
  }
}

// The parameters of a step's ranks, listed once a sum asks for them.
class ParametersOfRanks {
 public:
  bool has(const RankFile& file, const std::string& path) {
    const auto [known, is_new] = parameters_.try_emplace(&file);
    if (is_new) {
      known->second = parameters_of(file);
    }
    return known->second.contains(path);
  }

 private:
  std::map<const RankFile*, std::set<std::string>> parameters_;
};

}  // namespace

void leave_out_absent_addends(Trace& trace) {
  for (StepTrace& step : trace.steps()) {
    std::map<TensorId, std::vector<HeldRecord>> sums;
    for (RankFile& file : step.ranks) {
      for (std::size_t i = 0; i < file.records().size(); ++i) {
        const Record& record = file.records()[i];
        if (is_gradient_of_parameter(record.id.kind) && !record.placement.partial_over.empty()) {
          sums[record.id].push_back({&file, i});
        }
      }
    }
    ParametersOfRanks parameters;
    for (const auto& [id, parts] : sums) {
      const Placement& sum = parts.front().placement();
      const std::set<int> present = numbers_of(parts);
      std::set<int> known = present;
      for (const RankFile& file : step.ranks) {
        const int number = addend_number(file.layout(), sum.partial_over);
        if (!known.contains(number) && !parameters.has(file, id.path)) {
          known.insert(number);
        }
      }
      const bool is_complete = static_cast<int>(known.size()) == sum.partial_count;
      if (is_complete && known != present) {
        renumber(parts, present);  // else another one is missing, which is a finding
      }
    }
  }
}

}  // namespace ttrace
