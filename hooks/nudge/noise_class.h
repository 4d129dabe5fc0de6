// Data of the noise policy: which operators round, and how.
//
// Thread-safety: a free function without state.
#pragma once

#include "hooks/nudge/perturbation.h"

#include <string_view>

namespace ttrace {

// `name` is the dispatcher's, "aten::addmm" or "aten::add_".
[[nodiscard]] NoiseClass noise_class(std::string_view name);

}  // namespace ttrace
