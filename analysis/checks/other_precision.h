// Programs that compute in different types although both declare one precision.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "analysis/findings/report.h"

#include <ttrace/element_type.h>

#include <optional>

namespace ttrace {

// Where the types differ, one sentence says so as a remark, and as the cause of every tensor of
// another type. Otherwise nothing happens. Types: see activation_type().
void name_other_precision(const std::optional<ElementType>& reference,
                          const std::optional<ElementType>& candidate,
                          Report& report);

}  // namespace ttrace
