# ttrace_flags: the options of our own code. Every target of ours links it privately.
add_library(ttrace_flags INTERFACE)
target_compile_features(ttrace_flags INTERFACE cxx_std_20)
target_compile_options(ttrace_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror
  -fno-semantic-interposition -fopenmp-simd)

# GCC 12 and later report false positives in std::string after inlining: warn, do not fail.
target_compile_options(ttrace_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:
  -Wno-error=array-bounds;-Wno-error=restrict;-Wno-error=stringop-overflow>)

# GCC collects garbage of its own again and again. Without that it takes a tenth less time, and a tenth more memory.
target_compile_options(ttrace_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=4000000>)

# A loop that is not vectorised, as under a sanitizer, is not an error.
target_compile_options(ttrace_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)

set(TTRACE_SANITIZER "" CACHE STRING "Comma-separated -fsanitize= list, e.g. address,undefined")
if(TTRACE_SANITIZER)
  target_compile_options(ttrace_flags INTERFACE
    -fsanitize=${TTRACE_SANITIZER} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  target_link_options(ttrace_flags INTERFACE -fsanitize=${TTRACE_SANITIZER})
  # What they add to LibTorch's headers makes GCC see uninitialised values in std::optional.
  target_compile_options(ttrace_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized>)
endif()

find_program(TTRACE_CCACHE ccache)
if(TTRACE_CCACHE)
  # Depend mode spares a first build the preprocessor's second run. Joined sources lie in the build folder:
  # relative to it they are the same for another one, that of the Python package. So are precompiled
  # headers, which ccache serves only if it may ignore macros of the time and definitions in them.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1
    CCACHE_BASEDIR=${CMAKE_BINARY_DIR} CCACHE_SLOPPINESS=pch_defines,time_macros ${TTRACE_CCACHE})
endif()
