#include "trace/merge/absent_addends.h"

#include "trace/base/kind.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// A record of one rank.
struct HeldAddend {
  RankFile* file = nullptr;
  std::size_t index = 0;

  [[nodiscard]] const Placement& placement() const { return file->records()[index].placement; }
};

bool is_gradient_of_parameter(Kind kind) {
  return kind == Kind::kParamGrad || kind == Kind::kMainGrad;
}

// The number of a rank's addend in a sum over "dp,cp"; nothing where no axis is named.
std::optional<int> addend_of(const Layout& layout, const std::string& axes) {
  if (axes.empty()) {
    return std::nullopt;
  }
  int number = 0;
  std::istringstream names(axes);
  for (std::string axis; std::getline(names, axis, ',');) {
    number = number * layout.size(axis) + layout.coordinate(axis);
  }
  return number;
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

void renumber(const std::vector<HeldAddend>& parts, const std::set<int>& absent) {
  std::set<int> present;
  for (const HeldAddend& part : parts) {
    present.insert(part.placement().partial_index);
  }
  const int count = parts.front().placement().partial_count;
  for (int number = 0; number < count; ++number) {
    if (!present.contains(number) && !absent.contains(number)) {
      return;  // another one is missing, which is a finding
    }
  }
  for (const HeldAddend& part : parts) {
    Placement placement = part.placement();
    placement.partial_index =
        static_cast<int>(std::distance(present.begin(), present.find(placement.partial_index)));
    placement.partial_count = static_cast<int>(present.size());
    part.file->settle(part.index, std::move(placement));
  }
}

}  // namespace

void leave_out_absent_addends(Trace& trace) {
  for (StepTrace& step : trace.steps()) {
    std::map<TensorId, std::vector<HeldAddend>> sums;
    std::map<const RankFile*, std::set<std::string>> parameters;
    for (RankFile& file : step.ranks) {
      parameters[&file] = parameters_of(file);
      for (std::size_t i = 0; i < file.records().size(); ++i) {
        const Record& record = file.records()[i];
        if (is_gradient_of_parameter(record.id.kind) && record.placement.partial_count > 1) {
          sums[record.id].push_back({&file, i});
        }
      }
    }
    for (const auto& [id, parts] : sums) {
      std::set<int> absent;
      for (const RankFile& file : step.ranks) {
        const auto number = addend_of(file.layout(), parts.front().placement().partial_over);
        if (number && !parameters[&file].contains(id.path)) {
          absent.insert(*number);
        }
      }
      if (!absent.empty()) {
        renumber(parts, absent);
      }
    }
  }
}

}  // namespace ttrace
