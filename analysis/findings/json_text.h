// JSON as all reports write it.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace ttrace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and Inf: these are strings.
[[nodiscard]] Json number_json(double value);

// The JSON text in one line. Doubles get the fewest digits that read back equal. Foreign bytes of
// paths and notes are replaced rather than refused.
[[nodiscard]] std::string dump(const Json& json);

}  // namespace ttrace
