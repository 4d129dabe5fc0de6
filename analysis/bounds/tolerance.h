// Tolerances that the user asks for instead of the derived bound.
//
// Source: numpy.allclose, |c - r| <= atol + rtol * |r| at every element; both are fractions, never
// percent. NaN equals NaN at the same place, Inf equals Inf of the same sign.
#pragma once

#include "analysis/align/id_pattern.h"

#include <ttrace/tensor_id.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

struct TensorPair;

struct Tolerance {
  double rtol = 0.0;
  double atol = 0.0;

  bool operator==(const Tolerance&) const = default;
};

// "rtol 0.001, atol 0"
[[nodiscard]] std::string to_string(const Tolerance& tolerance);

// How a tensor stands to a tolerance.
struct ToleranceCheck {
  std::int64_t beyond = 0;        // elements that break it
  double worst = 0.0;             // max |c - r| / (atol + rtol |r|); Inf where only that is 0
  std::int64_t worst_index = -1;  // its first row-major position; -1 where all are equal
  double norm = 0.0;              // ||atol + rtol |r| ||: no larger ||c - r|| can pass
};

[[nodiscard]] ToleranceCheck check_tolerance(const Tolerance& tolerance, const TensorPair& pair);

// --rtol and --atol, each a number for all tensors or REGEX:VALUE for those whose whole id matches.
//
// Thread-safety: one thread at a time.
class ToleranceRules {
 public:
  // Throw UsageError for what is neither, a negative or infinite value, or a second number for all.
  void add_rtol(const std::string& argument) { add(rtol_, argument); }
  void add_atol(const std::string& argument) { add(atol_, argument); }

  // The first REGEX that matches decides, else the number for all; nothing where neither option
  // says anything of this tensor. What only the other one says counts as 0.
  [[nodiscard]] std::optional<Tolerance> of(const TensorId& id);

  // Patterns that applied to nothing so far, one sentence each.
  [[nodiscard]] std::vector<std::string> unused() const;

 private:
  struct Rules {
    std::string option;
    std::vector<IdPattern> patterns;
    std::vector<double> values;  // one per pattern
    std::optional<double> all;
  };
  static void add(Rules& rules, const std::string& argument);
  static std::optional<double> find(Rules& rules, const std::string& id);

  Rules rtol_{"--rtol", {}, {}, {}};
  Rules atol_{"--atol", {}, {}, {}};
};

}  // namespace ttrace
