// The planted bugs, by the part of the program that they change.
#pragma once

#include "fault.h"

#include <span>

namespace megatron_mini::faults {

[[nodiscard]] std::span<const Bug> attention_bugs();
[[nodiscard]] std::span<const Bug> clipping_bugs();
[[nodiscard]] std::span<const Bug> expert_bugs();
[[nodiscard]] std::span<const Bug> fp8_bugs();
[[nodiscard]] std::span<const Bug> gradient_bugs();
[[nodiscard]] std::span<const Bug> linear_bugs();
[[nodiscard]] std::span<const Bug> model_bugs();
[[nodiscard]] std::span<const Bug> norm_bugs();
[[nodiscard]] std::span<const Bug> optimizer_bugs();
[[nodiscard]] std::span<const Bug> reduction_bugs();
[[nodiscard]] std::span<const Bug> ring_bugs();
[[nodiscard]] std::span<const Bug> router_bugs();
[[nodiscard]] std::span<const Bug> trainer_bugs();

}  // namespace megatron_mini::faults
