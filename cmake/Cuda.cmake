# TTRACE_CUDA: the kernels that run on an NVIDIA GPU. Capture of CUDA tensors needs none of this.
option(TTRACE_CUDA "Build the CUDA kernels (needs nvcc)" OFF)
if(TTRACE_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "TTRACE_CUDA is on, but no working nvcc was found: put it on PATH, name it in "
      "the environment variable CUDACXX, or configure without -DTTRACE_CUDA=ON.")
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)  # A100; H100, H200
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
