// Values for a consistent start: the same on every layout, precision and machine.
//
// Integer arithmetic only: a value follows from (tensor path, logical index, seed) and lies on the
// BF16 grid, so that FP64, FP32 and BF16 programs start bit-equal. Biases are non-zero (a bias bug
// must show); padding is zero.
#pragma once

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ttrace {

// value = center + k * 2^exponent with k uniform in [-range, range].
struct FillRule {
  double center = 0.0;
  int exponent = -12;
  int range = 127;  // at most 128, so that k fits BF16's 8 significant bits
};

// Weights of norms (a path that ends in `.weight`, after the name of a module of Role::kNorm) lie
// around 1; all else around 0 with a standard deviation of 0.018. `roles`: of the program's
// annotations.
[[nodiscard]] FillRule default_fill_rule(std::string_view path,
                                         const std::map<std::string, std::string>& roles = {});

// Value of one logical element; `index` is its row-major position in the logical tensor.
[[nodiscard]] double fill_value(std::string_view path,
                                std::uint64_t index,
                                std::uint64_t seed,
                                const FillRule& rule);

// Writes a rank's contiguous local tensor (floating types). Throws UsageError for integer types.
void fill(std::string_view path,
          const Placement& placement,
          std::uint64_t seed,
          const FillRule& rule,
          ElementType type,
          void* target);

}  // namespace ttrace
