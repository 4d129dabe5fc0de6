# ttrace_torch_sources(target): the target's files include LibTorch.
#
# Its widest headers are parsed once for all targets, which takes 5 seconds from every target, and all files of a target
# are compiled as one, because the first file alone takes 3 seconds for templates of these headers. Files still include what they use:
# the asan preset builds without precompiled headers, as does -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON, for
# those who want ccache to serve several checkouts.

# A translation unit takes up to 2.5 GB: two at a time are what a small machine bears.
set_property(GLOBAL APPEND PROPERTY JOB_POOLS torch_pool=2)

# One precompiled header serves libraries and programs only where both are compiled alike.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/torch_headers.cpp CONTENT "")
add_library(ttrace_torch_headers OBJECT ${CMAKE_BINARY_DIR}/torch_headers.cpp)
target_link_libraries(ttrace_torch_headers PRIVATE ttrace_flags ttrace::torch)
target_precompile_headers(ttrace_torch_headers PRIVATE
  <ATen/ATen.h> <torch/csrc/autograd/custom_function.h> <torch/nn/module.h>)

function(ttrace_torch_sources target)
  set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch_pool)
  ttrace_joined_sources(${target} 0)
  target_precompile_headers(${target} REUSE_FROM ttrace_torch_headers)
endfunction()
