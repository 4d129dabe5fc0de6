# ttrace_test(NAME name SOURCES ... LINK ... [TORCH] [SUITES] [LABELS ...] [PROCESSORS n] [ENVIRONMENT ...])
#
# One GoogleTest program; its cases appear in ctest as name.Suite.Case. TORCH: its files include LibTorch.
# SUITES: one test of ctest is a suite, name.Suite, because to load LibTorch takes a process longer than most
# cases take. One case: PROGRAM --gtest_filter=Suite.Case.
include(GoogleTest)

# Suites are asked for when ctest runs, as cases are with PRE_TEST.
function(ttrace_discover_suites target)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${list} CONTENT "set(name ${target})
set(program \"$<TARGET_FILE:${target}>\")
set(properties \"${ARGN}\")
include(\"${CMAKE_SOURCE_DIR}/cmake/ListSuites.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${list})
endfunction()

# What nearly all tests without LibTorch include is parsed once for them.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/test_headers.cpp CONTENT "")
add_library(ttrace_test_headers OBJECT ${CMAKE_BINARY_DIR}/test_headers.cpp)
target_compile_options(ttrace_test_headers PRIVATE -O0)
target_link_libraries(ttrace_test_headers PRIVATE ttrace_flags GTest::gmock GTest::gtest_main)
target_precompile_headers(ttrace_test_headers PRIVATE
  <gmock/gmock.h> <gtest/gtest.h> <algorithm> <cmath> <filesystem> <fstream> <functional> <map> <nlohmann/json.hpp>
  <optional> <set> <span> <sstream> <string> <string_view> <vector>)

# The programs of tests that a change of what judges can reach, and those that they run: all that are not linked with LibTorch
# (`./dev test --changed`).
add_custom_target(tests_of_judging)

function(ttrace_test)
  cmake_parse_arguments(arg "TORCH;SUITES" "NAME;PROCESSORS" "SOURCES;LINK;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  # Open MPI unloads its parts before leaks are looked for, so that its leaks look like ours.
  if(TTRACE_SANITIZER AND ("examples" IN_LIST arg_LABELS OR "end_to_end" IN_LIST arg_LABELS))
    list(APPEND arg_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE ttrace_flags ${arg_LINK} GTest::gmock GTest::gtest_main)
  target_include_directories(${arg_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  if(arg_TORCH)
    ttrace_torch_sources(${arg_NAME})
  else()
    target_compile_options(${arg_NAME} PRIVATE -O0)
    ttrace_joined_sources(${arg_NAME} 14)
    target_precompile_headers(${arg_NAME} REUSE_FROM ttrace_test_headers)
    add_dependencies(tests_of_judging ${arg_NAME})
  endif()
  # Threads that wait for each other's turn take ten times as long while another test runs.
  set(properties PROCESSORS ${arg_PROCESSORS}
    ENVIRONMENT_MODIFICATION OMP_NUM_THREADS=set:1)
  # An empty list would make the next word its value.
  if(arg_LABELS)
    list(APPEND properties LABELS "${arg_LABELS}")
  endif()
  if(arg_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${arg_ENVIRONMENT}")
  endif()
  if(arg_SUITES)
    ttrace_discover_suites(${arg_NAME} ${properties})
    return()
  endif()
  gtest_discover_tests(${arg_NAME}
    TEST_PREFIX ${arg_NAME}.
    DISCOVERY_MODE PRE_TEST
    PROPERTIES ${properties})
endfunction()
