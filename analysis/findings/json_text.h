// JSON as all reports write it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <nlohmann/json.hpp>

#include <ostream>
#include <string>
#include <utility>

namespace ttrace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and Inf: these are strings.
[[nodiscard]] Json number_json(double value);

// The JSON text in one line. Doubles get the fewest digits that read back equal. Foreign bytes of
// paths and notes are replaced rather than refused.
[[nodiscard]] std::string dump(const Json& json);

// What `convert` makes of each.
template <class Range, class Convert>
[[nodiscard]] Json list_json(const Range& range, const Convert& convert) {
  Json list = Json::array();
  for (const auto& each : range) {
    list.push_back(convert(each));
  }
  return list;
}

// The same as text, with a line for each: a long list is never in memory as a whole.
template <class Range, class Convert>
void write_json_list(std::ostream& out, const Range& range, const Convert& convert) {
  out << '[';
  const char* separator = "\n";
  for (const auto& each : range) {
    out << std::exchange(separator, ",\n") << dump(convert(each));
  }
  out << "\n]";
}

}  // namespace ttrace
