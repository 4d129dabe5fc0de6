// A configuration file that differs from another one in a few keys.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <map>
#include <string>

namespace ttrace::testing {

// "model.experts" -> "4", "model.frozen" -> "[0]": YAML text by section and key, or by key alone at
// the top.
using ConfigChanges = std::map<std::string, std::string>;

// Writes `base` with `changes` to `file`; data.file, which is relative to `base`, becomes absolute.
// Throws UsageError for a base that cannot be read and a file that cannot be written.
void write_derived_config(const std::string& base,
                          const ConfigChanges& changes,
                          const std::string& file);

}  // namespace ttrace::testing
