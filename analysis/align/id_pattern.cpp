#include "analysis/align/id_pattern.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <regex>
#include <utility>

namespace ttrace {
namespace {

std::regex compile(const std::string& option, const std::string& text) {
  try {
    return std::regex(text, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    TTRACE_THROW(UsageError,
                 fmt::format("{} is '{}'; it must be a regular expression on tensor ids ({})",
                             option,
                             text,
                             error.what()));
  }
}

}  // namespace

struct IdPattern::Expression {
  explicit Expression(std::regex compiled) : regex(std::move(compiled)) {}

  std::regex regex;
};

IdPattern::IdPattern(std::string option, std::string text)
    : option_(std::move(option)),
      text_(std::move(text)),
      expression_(std::make_shared<Expression>(compile(option_, text_))) {}

bool IdPattern::found_in(const std::string& id) {
  const bool found = std::regex_search(id, expression_->regex);
  used_ = used_ || found;
  return found;
}

bool IdPattern::matches(const std::string& id) {
  const bool found = std::regex_match(id, expression_->regex);
  used_ = used_ || found;
  return found;
}

bool any_found_in(std::span<IdPattern> patterns, const std::string& id) {
  bool any = false;
  for (IdPattern& pattern : patterns) {
    any = pattern.found_in(id) || any;
  }
  return any;
}

void add_unused(std::span<const IdPattern> patterns,
                const std::string& what,
                std::vector<std::string>& warnings) {
  for (const IdPattern& pattern : patterns) {
    if (!pattern.used()) {
      warnings.push_back(pattern.text() + " matches no " + what);
    }
  }
}

}  // namespace ttrace
