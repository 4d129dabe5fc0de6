#include "trace/base/pattern.h"

#include <ttrace/error.h>

#include <regex>

namespace ttrace {

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& option, const std::string& text) {
  try {
    compiled_ = std::make_shared<const Compiled>(
        Compiled{std::regex(text, std::regex::ECMAScript | std::regex::optimize)});
  } catch (const std::regex_error& error) {
    TTRACE_THROW(UsageError,
                 option,
                 " is '",
                 text,
                 "'; it must be a regular expression (",
                 error.what(),
                 ")");
  }
}

bool Pattern::found_in(const std::string& name) const {
  return std::regex_search(name, compiled_->regex);
}

bool Pattern::matches(const std::string& name) const {
  return std::regex_match(name, compiled_->regex);
}

}  // namespace ttrace
