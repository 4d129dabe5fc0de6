# ttrace::torch_cuda: what a source needs that includes torch's headers of CUDA or c10d::ProcessGroupNCCL. Installed with the
# package; find_package(ttrace COMPONENTS cuda) makes it.
#
# TTRACE_TORCH_CUDA_DIR names a torch package with libtorch_cuda.so: usually that of TTRACE_TORCH_DIR, which programs run with.
# Another one, unpacked without the libraries of NVIDIA, serves to compile and link only; then TTRACE_TORCH_RUNS_CUDA is off, and
# what links ttrace::torch_cuda cannot be started.
set(TTRACE_TORCH_CUDA_DIR "" CACHE PATH "Folder of a torch package that has CUDA (lib/libtorch_cuda.so)")

# Sets `result` to the folders in which wheels next to `torch`, or in further folders, put NVIDIA's headers.
function(ttrace_nvidia_folders result torch)
  set(folders)
  foreach(packages ${torch}/.. ${ARGN})
    file(GLOB found ${packages}/nvidia/cu[0-9]* ${packages}/nvidia/nccl ${packages}/nvidia/cuda_runtime)
    list(APPEND folders ${found})
  endforeach()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

# Makes the target and sets TTRACE_TORCH_CUDA_FOUND to the folder of the torch, or sets `problem` to a sentence. `packages`: folders of unpacked wheels, or empty. `handles`: the folder
# cuda_handles.
function(ttrace_add_torch_cuda problem packages handles)
  set(${problem} "" PARENT_SCOPE)
  set(torch ${TTRACE_TORCH_CUDA_DIR})
  list(TRANSFORM packages APPEND /torch OUTPUT_VARIABLE candidates)
  foreach(candidate ${TTRACE_TORCH_DIR} ${candidates})
    if(NOT torch AND EXISTS ${candidate}/lib/libtorch_cuda.so)
      set(torch ${candidate})
    endif()
  endforeach()
  if(NOT torch OR NOT EXISTS ${torch}/lib/libtorch_cuda.so)
    set(${problem} "No torch with CUDA: neither ${TTRACE_TORCH_DIR} nor TTRACE_TORCH_CUDA_DIR ('${TTRACE_TORCH_CUDA_DIR}') has \
lib/libtorch_cuda.so. Pass -DTTRACE_TORCH_CUDA_DIR=<folder of a torch package with CUDA>." PARENT_SCOPE)
    return()
  endif()
  ttrace_nvidia_folders(folders ${torch} ${packages})
  # The wheel of CUDA's runtime does not bring crt/host_config.h, which its headers include; a toolkit has all of them.
  set(nccl_header nccl.h)
  set(cuda_header crt/host_config.h)
  foreach(part nccl cuda)
    find_path(TTRACE_${part}_INCLUDE ${${part}_header}
      HINTS ${folders} $ENV{CUDA_HOME} ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES} /usr/local/cuda PATH_SUFFIXES include)
    if(NOT TTRACE_${part}_INCLUDE)
      set(${problem} "${${part}_header} was not found: install the wheels nvidia-nccl, nvidia-cuda-runtime and nvidia-cuda-crt \
for the CUDA of ${torch}, or pass -DTTRACE_${part}_INCLUDE=<the folder that it is in>." PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(includes ${TTRACE_nccl_INCLUDE} ${TTRACE_cuda_INCLUDE})
  if(EXISTS ${TTRACE_cuda_INCLUDE}/cccl)
    list(APPEND includes ${TTRACE_cuda_INCLUDE}/cccl)
  endif()
  set(runs OFF)
  if(torch STREQUAL TTRACE_TORCH_DIR)
    set(runs ON)
  endif()
  set(TTRACE_TORCH_RUNS_CUDA ${runs} PARENT_SCOPE)
  set(TTRACE_TORCH_CUDA_FOUND ${torch} PARENT_SCOPE)
  add_library(ttrace::torch_cuda INTERFACE IMPORTED GLOBAL)
  target_include_directories(ttrace::torch_cuda SYSTEM INTERFACE ${includes} ${handles})
  # A CPU build of torch has the headers, but not the one that this define replaces.
  target_compile_definitions(ttrace::torch_cuda INTERFACE USE_C10D_NCCL C10_CUDA_NO_CMAKE_CONFIGURE_FILE)
  # Nothing refers to the code that registers CUDA. Libraries that these need may be missing where programs are linked only.
  target_link_libraries(ttrace::torch_cuda INTERFACE ttrace::torch
    -Wl,--push-state,--no-as-needed,${torch}/lib/libtorch_cuda.so,${torch}/lib/libc10_cuda.so,--pop-state
    -Wl,--allow-shlib-undefined)
endfunction()
