# ttrace_torch_sources(target [count]): the target's files include LibTorch.
#
# Its widest headers are parsed once for all targets and not once for every file, which with GCC 12 cuts
# a file from 11 to 5 seconds, and `count` files of a target (12) are compiled as one. Files still include what they use:
# the asan preset builds without precompiled headers, as does -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, for
# those who want ccache to serve several checkouts.

# A translation unit takes up to 1.7 GB: two at a time are what a small machine bears.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch_pool=2)

# One precompiled header serves libraries and programs only where both are compiled alike.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_headers.cpp CONTENT "")
add_library(ttrace_torch_headers OBJECT ${CMAKE_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(ttrace_torch_headers PRIVATE ttrace_flags ttrace::torch)
target_precompile_headers(ttrace_torch_headers PRIVATE
  <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <torch/nn/module.h>)

function(ttrace_torch_sources target)
  set(count 12)
  if(ARGC GREATER 1)
    set(count ${ARGV1})
  endif()
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch_pool)
  ttrace_joined_sources(${target} ${count})
  target_precompile_headers(${target} REUSE_FROM ttrace_torch_headers)
endfunction()
