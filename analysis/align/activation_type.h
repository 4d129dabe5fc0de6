// The element type in which a program computes, whatever its parameters are kept in.
//
// Thread-safety: a free function without shared state.
#pragma once

#include "trace/file/trace_reader.h"

#include <ttrace/element_type.h>

#include <optional>

namespace ttrace {

// That of most floating outputs of modules, on all ranks; of two types that are as frequent, the
// narrower one. Nothing if none was recorded.
[[nodiscard]] std::optional<ElementType> activation_type(const Trace& trace);

}  // namespace ttrace
