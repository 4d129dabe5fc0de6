# ttrace_room(NAME name SOURCES file... [USES room...] [LINK library...] [SYSTEM folder...] [COLD])
#
# One folder of the tree as a library of objects, `ttrace_<name>`. USES names the rooms below it, and nothing else is
# within its reach: tests/rooms links every room with those alone and fails where a symbol comes from elsewhere.
# The files of a room are compiled as one, which parses the headers that they share once. COLD: a room that is not worth
# the optimiser's time.
function(ttrace_room)
  cmake_parse_arguments(arg "COLD" "NAME" "SOURCES;USES;LINK;SYSTEM" ${ARGN})
  set(target ttrace_${arg_NAME})
  add_library(${target} OBJECT ${arg_SOURCES})
  # Included by its path from the top, as "trace/base/index_set.h".
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/include)
  target_include_directories(${target} SYSTEM PRIVATE ${arg_SYSTEM})
  target_link_libraries(${target} PRIVATE ttrace_flags ${arg_LINK})
  target_compile_definitions(${target} PRIVATE TTRACE_VERSION="${PROJECT_VERSION}")
  if(arg_COLD)
    target_compile_options(${target} PRIVATE -O1)
  endif()
  ttrace_unite_by_folder(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES TTRACE_USES "${arg_USES}" TTRACE_LINK "${arg_LINK}")
  set_property(GLOBAL APPEND PROPERTY TTRACE_ROOMS ${arg_NAME})
endfunction()

# ttrace_unite_by_folder(target file...): files of one folder are compiled as one.
function(ttrace_unite_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(file IN LISTS ARGN)
    cmake_path(GET file PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${target}_${folder}" group)
    set_source_files_properties(${file} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# ttrace_rooms_below(result name): the rooms that `name` uses, and those that they use.
function(ttrace_rooms_below result name)
  get_target_property(uses ttrace_${name} TTRACE_USES)
  set(below ${uses})
  foreach(room IN LISTS uses)
    ttrace_rooms_below(further ${room})
    list(APPEND below ${further})
  endforeach()
  list(REMOVE_DUPLICATES below)
  set(${result} ${below} PARENT_SCOPE)
endfunction()
