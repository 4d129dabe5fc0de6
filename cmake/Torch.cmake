# ttrace::torch: LibTorch as an imported target of our own. Installed with the package, whose users
# find LibTorch the same way.
#
# find_package(Torch) of a wheel drags in CUDA detection and rewrites flags; two libraries, two include
# folders and three definitions are all that is needed. The torch package is located without being
# imported.
set(TTRACE_TORCH_DIR "" CACHE PATH "Folder of the torch package or of a LibTorch zip (has include/ and lib/)")
if(SKBUILD)
  set(TTRACE_PYTHON "${PYTHON_EXECUTABLE}" CACHE FILEPATH "Python that has torch installed")
else()
  set(TTRACE_PYTHON "${CMAKE_SOURCE_DIR}/.venv/bin/python" CACHE FILEPATH "Python that has torch installed")
endif()

# Sets TTRACE_TORCH_DIR where it is not given: what TTRACE_PYTHON imports, else `fallback` if it is there.
function(ttrace_locate_torch fallback)
  if(TTRACE_TORCH_DIR)
    return()
  endif()
  execute_process(
    # pip builds in an environment of its own, from which installed packages are not imported.
    COMMAND ${TTRACE_PYTHON} -c
      "import importlib.util, sysconfig; s = importlib.util.find_spec('torch'); \
print(s.submodule_search_locations[0] if s else sysconfig.get_path('platlib') + '/torch')"
    OUTPUT_VARIABLE located OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    set(located "${fallback}")
  endif()
  if(located AND EXISTS ${located})
    set(TTRACE_TORCH_DIR "${located}" CACHE PATH "" FORCE)
  endif()
endfunction()

# "2.13" of the LibTorch in TTRACE_TORCH_DIR; empty where it does not tell.
function(ttrace_torch_version result)
  set(version "")
  foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${TTRACE_TORCH_DIR}/include/${header} AND NOT version)
      file(STRINGS ${TTRACE_TORCH_DIR}/include/${header} lines REGEX "define TORCH_VERSION_M[AI][JN]OR ")
      if("${lines}" MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+)")
        set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
      endif()
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# Makes the target, or sets `problem` to a sentence.
function(ttrace_add_torch problem)
  set(${problem} "" PARENT_SCOPE)
  if(NOT TTRACE_TORCH_DIR)
    set(${problem} "No LibTorch: ${TTRACE_PYTHON} has no torch. Pass \
-DTTRACE_TORCH_DIR=<folder of the torch package or of a LibTorch zip, with include/ and lib/> or \
-DTTRACE_PYTHON=<python with torch>." PARENT_SCOPE)
    return()
  endif()
  foreach(file include/ATen/ATen.h lib/libtorch_cpu.so lib/libc10.so)
    if(NOT EXISTS ${TTRACE_TORCH_DIR}/${file})
      set(${problem} "${TTRACE_TORCH_DIR} is no LibTorch: ${file} is missing. Pass \
-DTTRACE_TORCH_DIR=<folder of the torch package or of a LibTorch zip, with include/ and lib/>." PARENT_SCOPE)
      return()
    endif()
  endforeach()
  foreach(library torch_cpu c10)
    add_library(ttrace_${library} SHARED IMPORTED)
    set_target_properties(ttrace_${library} PROPERTIES
      IMPORTED_LOCATION ${TTRACE_TORCH_DIR}/lib/lib${library}.so)
  endforeach()
  add_library(ttrace::torch INTERFACE IMPORTED)
  target_include_directories(ttrace::torch SYSTEM INTERFACE
    ${TTRACE_TORCH_DIR}/include ${TTRACE_TORCH_DIR}/include/torch/csrc/api/include)
  # NDEBUG always: at::RecordFunction has members under #ifndef NDEBUG, and the released library was
  # built with it.
  target_compile_definitions(ttrace::torch INTERFACE NDEBUG USE_DISTRIBUTED)
  target_compile_features(ttrace::torch INTERFACE cxx_std_20)
  target_link_libraries(ttrace::torch INTERFACE ttrace_torch_cpu ttrace_c10)
endfunction()
