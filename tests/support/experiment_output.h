// Files that programs of experiments write in addition to their traces.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <string>

namespace ttrace::testing {

// Writes nothing if the path is empty. Throws UsageError if the file cannot be written.
void write_if_asked(const std::string& path, const std::string& text);

// "./dev roc --quick": `verb` and the arguments that the program was given.
[[nodiscard]] std::string command_text(const std::string& verb, int argc, char** argv);

}  // namespace ttrace::testing
