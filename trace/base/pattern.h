// A regular expression that somebody gave, on tensor ids or names. <regex> takes the compiler a
// second wherever it is used, so it is used in pattern.cpp alone.
//
// The grammar is ECMAScript's.
// Thread-safety: values.
#pragma once

#include <memory>
#include <string>

namespace ttrace {

class Pattern {
 public:
  // `option` is where the user wrote it: "--filter", "TTRACE_FILTER". Throws UsageError naming
  // both.
  Pattern(const std::string& option, const std::string& text);

  // Whether it occurs anywhere in `name`.
  [[nodiscard]] bool found_in(const std::string& name) const;
  // Whether it is the whole of `name`.
  [[nodiscard]] bool matches(const std::string& name) const;

 private:
  struct Compiled;

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace ttrace
