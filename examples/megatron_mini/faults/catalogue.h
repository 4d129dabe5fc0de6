// What bugs.yaml declares of every bug: where it was found, when it acts, and where the first
// divergence must show.
//
// Thread-safety: values and free functions without shared state.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatron_mini::faults {

struct BugEntry {
  std::string name;
  std::string source;    // where it was found and how it came about
  std::string needs;     // when it acts; see holds() in conditions.h
  std::string expected;  // regular expression for the whole id of the first divergence
  std::string hint;      // regular expression for the signature that a diagnosis should name
  std::string size;      // what --bug-size sets, "none" for nothing
  bool pending = false;  // declared, but not re-created here yet
};

// All declared bugs. Throws UsageError for a file that cannot be read.
[[nodiscard]] std::vector<BugEntry> load_bugs(const std::string& file);

// Throws UsageError for a name that is not declared or not re-created yet, and for a size where the
// bug has none.
[[nodiscard]] BugEntry find_bug(const std::string& file,
                                const std::string& name,
                                std::optional<double> size);

}  // namespace megatron_mini::faults
