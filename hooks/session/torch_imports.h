// The writer of imported traces as a TorchScript class: what python/ttrace/imports writes with.
//
// Thread-safety: one thread at a time for each object.
#pragma once

#include <torch/library.h>

namespace ttrace {

// Adds the class `ImportedTrace`.
void register_imports(torch::Library& library);

}  // namespace ttrace
