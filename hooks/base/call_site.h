// Where in the program's own code this thread is, as the layer of another language reports it.
//
// The Python package sets a function that walks the interpreter's frames. Programs without such a
// function have no call sites.
//
// Thread-safety: set while no operator runs; call_site() from any thread, without holding a lock
// that the other language's threads may wait for.
#pragma once

#include <string>

namespace ttrace {

// Writes at most `size` bytes of "model.py:88" to `text` and returns their number.
using CallSiteProvider = int (*)(char* text, int size);

// Empty if no function reports it.
[[nodiscard]] std::string call_site();

}  // namespace ttrace

// `provider` must stay callable until another one or null is set.
extern "C" void ttrace_set_call_site_provider(ttrace::CallSiteProvider provider);
