# ttrace_torch_sources(target): the target's files include LibTorch.
#
# What nearly all targets parse of its headers is parsed once for them, and all files of a target are compiled as one,
# because the first file alone takes 3 seconds for templates of these headers. Of the rooms of hooks/ this takes a third
# of the time, 28 of 85 CPU seconds. ATen/ATen.h is left out: it costs the targets that include it less than it costs the
# others to load a file that holds it. Files still include what they use: the asan preset builds without precompiled
# headers, as does -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, for those who want ccache to serve several checkouts.

# A translation unit takes up to 2.5 GB: two at a time are what a small machine bears.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch_pool=2)

# One precompiled header serves libraries and programs only where both are compiled alike.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_headers.cpp CONTENT "")
add_library(ttrace_torch_headers OBJECT ${CMAKE_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(ttrace_torch_headers PRIVATE ttrace_flags ttrace::torch)
target_precompile_headers(ttrace_torch_headers PRIVATE
  <ATen/core/Tensor.h> <ATen/core/ivalue.h> <ATen/record_function.h> <torch/csrc/autograd/function.h> <torch/library.h>)

function(ttrace_torch_sources target)
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch_pool)
  ttrace_joined_sources(${target} 0)
  target_precompile_headers(${target} REUSE_FROM ttrace_torch_headers)
endfunction()
