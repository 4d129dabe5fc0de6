// Sets TTRACE_* for the lifetime of an object, as `ttrace check` does for a pass.
#pragma once

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace ttrace::testing {

using Variables = std::map<std::string, std::string>;

class PassEnvironment {
 public:
  explicit PassEnvironment(Variables variables) : variables_(std::move(variables)) {
    for (const auto& [name, value] : variables_) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~PassEnvironment() {
    for (const auto& [name, value] : variables_) {
      unsetenv(name.c_str());
    }
  }
  PassEnvironment(const PassEnvironment&) = delete;  // undoes once
  PassEnvironment& operator=(const PassEnvironment&) = delete;

 private:
  Variables variables_;
};

inline Variables reference_pass(const std::string& directory) {
  return {{"TTRACE_PASS", "reference"}, {"TTRACE_DIR", directory}};
}

inline Variables candidate_pass(const std::string& directory, const std::string& reference) {
  return {{"TTRACE_PASS", "candidate"}, {"TTRACE_DIR", directory}, {"TTRACE_REFERENCE", reference}};
}

inline Variables noise_pass(const std::string& reference, int seed) {
  return {{"TTRACE_PASS", "noise"},
          {"TTRACE_REFERENCE", reference},
          {"TTRACE_NOISE_SEED", std::to_string(seed)}};
}

// `variables` with one more or another value.
inline Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

}  // namespace ttrace::testing
