// Stored traces as a TorchScript class: what ttrace.open() of python/ttrace reads with.
//
// Thread-safety: objects are immutable once made.
#pragma once

#include <torch/library.h>

namespace ttrace {

// Adds the class `StoredTrace`.
void register_traces(torch::Library& library);

}  // namespace ttrace
