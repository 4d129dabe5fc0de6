# ttrace_room(NAME name [SOURCES file...] [TORCH file...] [USES room...] [LINK library...] [SYSTEM folder...] [HOT])
#
# One folder of the tree as one or two libraries of objects. SOURCES become `ttrace_<name>`, which is compiled without
# LibTorch's include folders, so that tests and the thread sanitizer can link it without LibTorch. TORCH files include
# LibTorch and become `ttrace_<name>_torch`. A file belongs to SOURCES if and only if it compiles there.
#
# USES names the rooms that this room may use, directly or through another one. tests/rooms links every room with those
# alone and fails where a symbol comes from elsewhere. LINK names further libraries. The files of a room are compiled
# together, which parses the headers that they share once. HOT: loops of this room touch every element of tensors, so it
# is compiled with -O2. Everything else is compiled with -Og, which takes the compiler half the time. (With -O2 in
# analysis_align, analysis_checks, trace_file and trace_merge, `ttrace diff` took 0.93 of the time, and the compiler over a
# minute more.)

# What nearly all files without LibTorch include is parsed once for them. GCC reads a precompiled header only where the
# options are the same, so files and rooms with an option of their own do without it.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/plain_headers.cpp CONTENT "")
add_library(ttrace_plain_headers OBJECT ${CMAKE_BINARY_DIR}/plain_headers.cpp)
target_link_libraries(ttrace_plain_headers PRIVATE ttrace_flags nlohmann_json::nlohmann_json)
target_precompile_headers(ttrace_plain_headers PRIVATE
  <algorithm> <array> <cmath> <filesystem> <fstream> <functional> <map> <memory> <nlohmann/json.hpp>
  <optional> <set> <span> <sstream> <string> <string_view> <unordered_map> <vector>)

function(ttrace_room)
  cmake_parse_arguments(arg "HOT" "NAME" "SOURCES;TORCH;USES;LINK;SYSTEM" ${ARGN})
  set(targets)
  if(arg_SOURCES)
    set(target ttrace_${arg_NAME})
    ttrace_room_objects(${target} "${arg_SOURCES}" "${arg_LINK}")
    target_include_directories(${target} SYSTEM PRIVATE ${arg_SYSTEM})
    if(arg_HOT)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    else()
      target_precompile_headers(${target} REUSE_FROM ttrace_plain_headers)
    endif()
    list(APPEND targets ${target})
  endif()
  if(arg_TORCH)
    set(target ttrace_${arg_NAME}_torch)
    ttrace_room_objects(${target} "${arg_TORCH}" "ttrace::torch;${arg_LINK}")
    ttrace_torch_sources(${target})
    list(APPEND targets ${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY TTRACE_ROOMS ${arg_NAME})
  set_property(GLOBAL PROPERTY TTRACE_TARGETS_${arg_NAME} ${targets})
  set_property(GLOBAL PROPERTY TTRACE_USES_${arg_NAME} ${arg_USES})
  set_property(GLOBAL PROPERTY TTRACE_LINK_${arg_NAME} ${arg_LINK})
endfunction()

# ttrace_room_objects(target files libraries): what both kinds of libraries have in common.
function(ttrace_room_objects target files libraries)
  add_library(${target} OBJECT ${files})
  # Headers are included by their path from the top, as "trace/base/index_set.h".
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  target_link_libraries(${target} PRIVATE ttrace_flags ${libraries})
  ttrace_joined_sources(${target} 0)  # all of them
endfunction()

# ttrace_rooms_below(result name): the rooms that `name` uses, and those that they use.
function(ttrace_rooms_below result name)
  get_property(uses GLOBAL PROPERTY TTRACE_USES_${name})
  set(below ${uses})
  foreach(room IN LISTS uses)
    ttrace_rooms_below(further ${room})
    list(APPEND below ${further})
  endforeach()
  list(REMOVE_DUPLICATES below)
  set(${result} ${below} PARENT_SCOPE)
endfunction()
