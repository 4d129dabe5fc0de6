# Run by ctest: adds a test for every suite of the GoogleTest program `program`, called `name`.SUITE, with
# `properties`. A program that is not built is a test that was not run.
if(NOT EXISTS "${program}")
  add_test(${name}_NOT_BUILT ${name}_NOT_BUILT)
  return()
endif()
execute_process(COMMAND "${program}" --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${program} --gtest_list_tests: ${failed}")
endif()
string(REGEX REPLACE "[][;]" "_" listed "${listed}")  # of parameters; lists would be cut there
string(REPLACE "\n" ";" listed "${listed}")
foreach(line IN LISTS listed)
  # "Suite.", or "Suite/0.  # TypeParam = float"; cases are indented.
  if(line MATCHES "^([^ ]+)\\.( .*)?$")
    set(suite ${CMAKE_MATCH_1})
    add_test(${name}.${suite} "${program}" "--gtest_filter=${suite}.*")
    set_tests_properties(${name}.${suite} PROPERTIES ${properties})
  endif()
endforeach()
