# ttrace::torch: LibTorch as an imported target of our own.
#
# find_package(Torch) of a wheel drags in CUDA detection and rewrites flags; two libraries, two include
# folders and three definitions are all that is needed. The torch package is located without being
# imported.
set(TTRACE_TORCH_DIR "" CACHE PATH "Folder of the torch package or of a LibTorch zip (has include/ and lib/)")
set(TTRACE_PYTHON "${CMAKE_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that has torch installed")

if(NOT TTRACE_TORCH_DIR)
  execute_process(
    COMMAND ${TTRACE_PYTHON} -c
      "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "No torch found through ${TTRACE_PYTHON}. Run ./dev setup, or pass "
      "-DTTRACE_TORCH_DIR=<folder with include/ and lib/> or -DTTRACE_PYTHON=<python with torch>.")
  endif()
  set(TTRACE_TORCH_DIR "${torch_dir}" CACHE PATH "" FORCE)
endif()
foreach(file include/ATen/ATen.h lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS ${TTRACE_TORCH_DIR}/${file})
    message(FATAL_ERROR "${TTRACE_TORCH_DIR} is no LibTorch: ${file} is missing. Set -DTTRACE_TORCH_DIR to "
      "the torch folder of an installed wheel or to the libtorch folder of an unpacked zip.")
  endif()
endforeach()

foreach(library torch_cpu c10)
  add_library(ttrace_${library} SHARED IMPORTED)
  set_target_properties(ttrace_${library} PROPERTIES
    IMPORTED_LOCATION ${TTRACE_TORCH_DIR}/lib/lib${library}.so)
endforeach()

add_library(ttrace_libtorch INTERFACE)
add_library(ttrace::torch ALIAS ttrace_libtorch)
target_include_directories(ttrace_libtorch SYSTEM INTERFACE
  ${TTRACE_TORCH_DIR}/include ${TTRACE_TORCH_DIR}/include/torch/csrc/api/include)
# NDEBUG always: at::RecordFunction has members under #ifndef NDEBUG, and the released library was built
# with it.
target_compile_definitions(ttrace_libtorch INTERFACE NDEBUG USE_DISTRIBUTED)
target_compile_features(ttrace_libtorch INTERFACE cxx_std_20)
target_link_libraries(ttrace_libtorch INTERFACE ttrace_torch_cpu ttrace_c10)
