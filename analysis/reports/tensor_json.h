// Parts of a report in JSON, for the report itself and for commands that print one of them.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/findings/diagnosis.h"
#include "analysis/findings/json_text.h"
#include "analysis/findings/report.h"
#include "analysis/findings/verdict.h"
#include "analysis/findings/zoom_report.h"

#include <optional>

namespace ttrace {

[[nodiscard]] Json check_json(const Check& check);
[[nodiscard]] Json tensor_json(const TensorVerdict& tensor);
// All of a report but its tensors.
[[nodiscard]] Json header_json(const Report& report);
// The second best cause; null where there is none.
[[nodiscard]] Json runner_up_json(const std::optional<Diagnosis>& diagnosis);
// Null without a zoom.
[[nodiscard]] Json zoom_json(const std::optional<ZoomReport>& zoom);

}  // namespace ttrace
