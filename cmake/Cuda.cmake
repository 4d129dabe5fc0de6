# TTRACE_CUDA: libttrace_cuda.so, the kernels that run on an NVIDIA GPU, and ttrace::torch_cuda. Capture of CUDA tensors needs
# none of this.
option(TTRACE_CUDA "Build the CUDA kernels (needs nvcc)" OFF)
set(TTRACE_CUDA_PACKAGES "${CMAKE_SOURCE_DIR}/.venv/cuda/nvcc;${CMAKE_SOURCE_DIR}/.venv/cuda/torch" CACHE STRING
  "Folders of unpacked wheels: those of NVIDIA, and of a torch with CUDA (./dev build --cuda fills them)")
if(NOT TTRACE_CUDA)
  return()
endif()

# nvcc: what the user names, else one on PATH, else that of the wheels.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  list(TRANSFORM TTRACE_CUDA_PACKAGES APPEND /nvidia/cu[0-9]*/bin OUTPUT_VARIABLE wheels)
  file(GLOB wheels ${wheels})
  find_program(TTRACE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS /usr/local/cuda/bin ${wheels})
  if(TTRACE_NVCC)
    set(ENV{CUDACXX} ${TTRACE_NVCC})
  endif()
endif()
# The wheels' libraries lie in lib, where their nvcc does not look.
if(TTRACE_NVCC)
  get_filename_component(home ${TTRACE_NVCC}/../.. ABSOLUTE)
  if(EXISTS ${home}/lib/libcudart_static.a AND NOT EXISTS ${home}/lib64 AND NOT DEFINED ENV{CUDAFLAGS})
    set(ENV{CUDAFLAGS} -L${home}/lib)
  endif()
endif()

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "TTRACE_CUDA is on, but no working nvcc was found: put it on PATH, name it in "
    "the environment variable CUDACXX, let `./dev build --cuda` install it, or configure without -DTTRACE_CUDA=ON.")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # A100; H100 and H200; B200, and instructions that later GPUs translate.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
endif()
enable_language(CUDA)

include(TorchCuda)
ttrace_add_torch_cuda(ttrace_cuda_problem "${TTRACE_CUDA_PACKAGES}" ${CMAKE_SOURCE_DIR}/cmake/cuda_handles)
if(ttrace_cuda_problem)
  message(STATUS "What uses NCCL is left out. ${ttrace_cuda_problem}")
endif()
