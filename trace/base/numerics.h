// Keys of a manifest's `numerics`: what the machine does to numbers. hooks writes them, analysis
// reads them, and docs/trace_format.md lists them.
//
// Thread-safety: constants.
#pragma once

namespace ttrace::numerics {

inline constexpr auto kDevice = "device";          // type of the parameters' device: "cpu", "cuda"
inline constexpr auto kProducts = "f32_products";  // what F32 operands of products are rounded to
inline constexpr auto kThreads = "threads";        // of operators on the CPU
inline constexpr auto kDeterministic = "deterministic_algorithms";  // "on", "warn" or "off"

inline constexpr auto kCpu = "cpu";
inline constexpr auto kF32 = "f32";    // nothing coarser: not at all
inline constexpr auto kTf32 = "tf32";  // 10 bits of mantissa
inline constexpr auto kBf16 = "bf16";  // 7 bits
inline constexpr auto kOff = "off";

// What no CPU tensor meets: settings of CUDA's libraries.
inline constexpr auto kCudaPrefix = "cuda_";

}  // namespace ttrace::numerics
