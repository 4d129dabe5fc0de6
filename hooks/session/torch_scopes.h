// Scopes as a TorchScript class: what python/ttrace calls around every module.
//
// Thread-safety: every thread has scopes of its own.
#pragma once

#include <torch/library.h>

namespace ttrace {

// Adds the class `Scopes`.
void register_scopes(torch::Library& library);

// Closes the scopes that are still open on this thread.
void close_scopes();

}  // namespace ttrace
