// A small model, checks of it, and what a test does to their traces.
//
// Thread-safety: independent objects may be used from different threads.
#pragma once

#include "end_to_end/checks.h"
#include "support/derived_config.h"

#include <ttrace/element_type.h>

#include <nlohmann/json.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ttrace::testing {

// examples/tiny.yaml made smaller, in a folder of its own.
class SmallRun {
 public:
  SmallRun(const ConfigChanges& changes, std::string precision, int steps = 1);

  // Runs both programs in `layout`, which is options of megatron_mini; everything goes to
  // folder(name).
  [[nodiscard]] ProcessResult check(const std::string& name,
                                    const std::string& layout,
                                    const std::vector<std::string>& options = {}) const;
  // The same with the reference of the check called `stored`.
  [[nodiscard]] ProcessResult check_again(const std::string& name,
                                          const std::string& layout,
                                          const std::string& stored) const;

  [[nodiscard]] std::string reference() const;
  [[nodiscard]] std::string candidate(const std::string& layout) const;
  [[nodiscard]] std::string folder(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] nlohmann::json report(const std::string& name) const;

 private:
  TemporaryDirectory folder_;
  TrainingRun training_;
};

// The bytes of a tensor of this type.
using Change = std::function<void(ElementType, std::vector<std::byte>&)>;

void change_signs(ElementType type, std::vector<std::byte>& bytes);
// Every expert becomes its next one of four.
void change_experts(ElementType type, std::vector<std::byte>& bytes);

// Copies a trace of one step with one record of `rank` changed.
void copy_with(const Change& change,
               int rank,
               const std::string& id,
               const std::string& trace,
               const std::string& copy);

}  // namespace ttrace::testing
