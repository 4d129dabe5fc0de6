// What an operator's schema and name say about it: the memory that it reads and writes, how it
// rounds, and whether it computes by itself.
//
// Thread-safety: a free function; every thread has a table of its own.
#pragma once

#include "trace/kernels/noise.h"

#include <ATen/record_function.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ttrace {

// What its results are made of.
enum class Material : std::uint8_t {
  kMemory,     // nothing yet: empty
  kZeros,      // zeros, zero_
  kConstants,  // numbers of its own, or of the program's: ones, full, rand, lift_fresh
  kArguments,
};

struct OperatorEffects {
  Material material = Material::kArguments;
  NoiseClass noise = NoiseClass::kRounding;
  bool is_composed = false;     // torch composes it of others: no kernel of its own computes it
  bool may_draw = false;        // a kernel of its own may take numbers from a generator
  bool returns = true;          // something
  bool overwrites = false;      // what it writes to keeps nothing of what was there
  std::vector<bool> writes;     // by argument: the schema marks it as changed, "(a!)"
  std::vector<bool> is_result;  // by argument: written to, and not only to unscale gradients

  [[nodiscard]] bool writes_argument(std::size_t i) const { return i < writes.size() && writes[i]; }
  [[nodiscard]] bool is_result_argument(std::size_t i) const {
    return i < is_result.size() && is_result[i];
  }
};

// REQUIRES: `function` is an operator of the dispatcher. The reference stays valid on this thread.
[[nodiscard]] const OperatorEffects& effects_of(const at::RecordFunction& function);

}  // namespace ttrace
