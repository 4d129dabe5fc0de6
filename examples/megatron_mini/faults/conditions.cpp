#include "conditions.h"

#include "../error.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

namespace megatron_mini::faults {

namespace {

class Condition {
 public:
  Condition(std::string_view text, const RunFacts& facts) : text_(text), facts_(facts) {
    advance();
  }

  bool whole() {
    const bool result = disjunction();
    expect(word_.empty());
    return result;
  }

 private:
  bool disjunction() {
    bool result = conjunction();
    while (take("or")) {
      const bool right = conjunction();
      result = result || right;
    }
    return result;
  }

  bool conjunction() {
    bool result = negation();
    while (take("and")) {
      const bool right = negation();
      result = result && right;
    }
    return result;
  }

  bool negation() {
    if (take("not")) {
      return !negation();
    }
    if (take("(")) {
      const bool result = disjunction();
      expect(take(")"));
      return result;
    }
    const std::int64_t left = product();
    if (take(">=")) {
      return left >= product();
    }
    if (take("==")) {
      return left == product();
    }
    if (take("<")) {
      return left < product();
    }
    return left != 0;
  }

  std::int64_t product() {
    std::int64_t result = value();
    while (take("*")) {
      result *= value();
    }
    return result;
  }

  std::int64_t value() {
    std::int64_t number = 0;
    const auto parsed = std::from_chars(word_.data(), word_.data() + word_.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != word_.data() + word_.size()) {
      const auto fact = facts_.find(word_);
      expect(fact != facts_.end());
      number = fact->second;
    }
    advance();
    return number;
  }

  bool take(std::string_view word) {
    if (word_ != word) {
      return false;
    }
    advance();
    return true;
  }

  // A word is a name, a number, an operator or a bracket; the last one is empty.
  void advance() {
    text_.remove_prefix(std::min(text_.find_first_not_of(' '), text_.size()));
    const auto in_name = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    };
    std::size_t length = 0;
    if (!text_.empty() && in_name(text_.front())) {
      while (length < text_.size() && in_name(text_[length])) {
        ++length;
      }
    } else if (!text_.empty()) {
      length = text_.size() > 1 && text_[1] == '=' ? 2 : 1;
    }
    word_ = text_.substr(0, length);
    text_.remove_prefix(length);
  }

  void expect(bool fine) const {
    require<InternalError>(
        fine, "bugs.yaml: a condition neither ends at nor continues with `", word_, "`");
  }

  std::string_view text_;  // behind word_
  const RunFacts& facts_;
  std::string_view word_;
};

}  // namespace

bool holds(std::string_view condition, const RunFacts& facts) {
  return condition == "always" || Condition(condition, facts).whole();
}

}  // namespace megatron_mini::faults
