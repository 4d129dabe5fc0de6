// How a tensor's verdict is written in JSON: for the report, and for the explanation of one tensor.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/verdict.h"

#include <nlohmann/json.hpp>

#include <string>

namespace ttrace {

using Json = nlohmann::ordered_json;

// JSON has no NaN and Inf: these are strings.
[[nodiscard]] Json number_json(double value);

[[nodiscard]] Json check_json(const Check& check);
[[nodiscard]] Json tensor_json(const TensorVerdict& tensor);

// In one line. Doubles are written with the fewest digits that read back equal; foreign bytes of
// paths and notes are replaced rather than refused.
[[nodiscard]] std::string dump(const Json& json);

}  // namespace ttrace
