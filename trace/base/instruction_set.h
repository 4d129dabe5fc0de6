// The instruction sets that loops over elements are compiled for, and which of them to run.
//
// A loop is written once as an always_inline function and called from one function per set:
//
//   TTRACE_AVX2 void add_avx2(...) { add(...); }
//
// so that no inline function of a header is compiled for a processor that may not be there.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#define TTRACE_AVX2 [[gnu::target("avx2")]]
#if defined(__clang__)  // knows no preferred width here
#define TTRACE_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]]
#else
#define TTRACE_AVX512 [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]]
#endif
#else
#define TTRACE_AVX2
#define TTRACE_AVX512
#endif

namespace ttrace {

enum class InstructionSet : std::uint8_t { kBaseline, kAvx2, kAvx512 };  // slowest first

// The fastest that this processor has.
[[nodiscard]] InstructionSet best_instruction_set();

// Chooses among functions that do the same the one for the fastest instruction set, or for `set`.
template <class Function>
[[nodiscard]] Function* fastest(Function* baseline,
                                Function* avx2,
                                Function* avx512,
                                InstructionSet set = best_instruction_set()) {
  return set == InstructionSet::kAvx512 ? avx512 : set == InstructionSet::kAvx2 ? avx2 : baseline;
}

}  // namespace ttrace
