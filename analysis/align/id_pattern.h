// A regular expression on tensor ids that somebody gave, and whether it ever applied: an option
// that silently does nothing is a trap.
//
// The grammar is ECMAScript's, as for TTRACE_FILTER.
// Thread-safety: one thread at a time.
#pragma once

#include "trace/base/pattern.h"

#include <span>
#include <string>
#include <vector>

namespace ttrace {

class IdPattern {
 public:
  // `option` is what the user wrote before it, "--filter". Throws UsageError naming both.
  IdPattern(std::string option, std::string text);

  // Whether it occurs anywhere in `id`.
  [[nodiscard]] bool found_in(const std::string& id);
  // Whether it is the whole of `id`.
  [[nodiscard]] bool matches(const std::string& id);

  // Whether either of the two functions ever returned true.
  [[nodiscard]] bool used() const { return used_; }
  // "--filter 'x'"
  [[nodiscard]] std::string text() const { return option_ + " '" + text_ + "'"; }

 private:
  std::string option_;
  std::string text_;
  Pattern pattern_;
  bool used_ = false;
};

// One for each of `texts`, all of them with the same option.
[[nodiscard]] std::vector<IdPattern> id_patterns(const std::string& option,
                                                 std::span<const std::string> texts);

// Whether any pattern is found in `id`. Tries all of them, so that each records whether it applies.
[[nodiscard]] bool any_found_in(std::span<IdPattern> patterns, const std::string& id);

// "--filter 'x' matches no tensor id" for those that never applied.
void add_unused(std::span<const IdPattern> patterns,
                const std::string& what,
                std::vector<std::string>& warnings);

}  // namespace ttrace
