// A tensor's verdict in JSON: for the report, and for the explanation of one tensor.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/json_text.h"
#include "analysis/findings/verdict.h"

namespace ttrace {

[[nodiscard]] Json check_json(const Check& check);
[[nodiscard]] Json tensor_json(const TensorVerdict& tensor);

}  // namespace ttrace
