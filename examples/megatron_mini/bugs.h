// Real silent bugs, re-created one at a time behind `--bug NAME`.
//
// bugs.yaml declares each of them: where it was found, when it acts, and where the first divergence
// must show. Its code is one place in this program that asks `bugs.on("name")`; a test sees to it
// that every name occurs exactly once.
//
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron_mini {

struct BugEntry {
  std::string name;
  std::string source;    // where it was found and how it came about
  std::string needs;     // when it acts; see holds() in bug_needs.h
  std::string expected;  // regular expression for the whole id of the first divergence
  std::string hint;      // regular expression for the signature that a diagnosis should name
  std::string size;      // what --bug-size sets, "none" for nothing
  bool pending = false;  // declared, but not re-created here yet
};

// All declared bugs. Throws ttrace::UsageError for a file that cannot be read.
[[nodiscard]] std::vector<BugEntry> load_bugs(const std::string& file);

// The names of axes and options in `needs`, and what a run has of them; 0 is absent.
using RunFacts = std::map<std::string, std::int64_t, std::less<>>;

class Bugs {
 public:
  Bugs() = default;
  // Without checks: for tests and for what load() returns.
  explicit Bugs(std::string active, std::optional<double> size = {});

  // Throws ttrace::UsageError for a name that is not declared or not re-created yet, and for a size
  // where the bug has none.
  [[nodiscard]] static Bugs load(const std::string& file,
                                 const std::string& active,
                                 std::optional<double> size);
  // Throws ttrace::UsageError with what the bug needs where it cannot act in that run.
  void check_can_act(const RunFacts& run) const;

  [[nodiscard]] bool on(std::string_view name) const { return active_ == name; }
  // The bug's magnitude: --bug-size, or this.
  [[nodiscard]] double size(double otherwise) const { return size_.value_or(otherwise); }

 private:
  std::string active_;  // empty: none
  std::string needs_ = "always";
  std::optional<double> size_;
};

}  // namespace megatron_mini
