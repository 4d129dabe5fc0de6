# ttrace_room(NAME name [SOURCES file...] [TORCH file...] [USES room...] [LINK library...] [SYSTEM folder...] [HOT])
#
# One folder of the tree as one or two libraries of objects. SOURCES become `ttrace_<name>`, which is compiled without
# LibTorch's include folders, so that tests and the thread sanitizer can link it without LibTorch. TORCH files include
# LibTorch and become `ttrace_<name>_torch`. A file belongs to SOURCES if and only if it compiles there.
#
# USES names the rooms that this room may use, directly or through another one. tests/rooms links every room with those
# alone and fails where a symbol comes from elsewhere. LINK names further libraries. The files of a room are compiled
# together, which parses the headers that they share once. HOT: loops of this room touch every element of tensors, so it
# is compiled with -O2. Everything else is compiled with -O1, which takes the compiler a third less time.
function(ttrace_room)
  cmake_parse_arguments(arg "HOT" "NAME" "SOURCES;TORCH;USES;LINK;SYSTEM" ${ARGN})
  set(targets)
  if(arg_SOURCES)
    set(target ttrace_${arg_NAME})
    ttrace_room_objects(${target} "${arg_SOURCES}" "${arg_LINK}")
    target_include_directories(${target} SYSTEM PRIVATE ${arg_SYSTEM})
    if(arg_HOT)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
    ttrace_unite_by_folder(${target} ${arg_SOURCES})
    list(APPEND targets ${target})
  endif()
  if(arg_TORCH)
    set(target ttrace_${arg_NAME}_torch)
    ttrace_room_objects(${target} "${arg_TORCH}" "ttrace::torch;${arg_LINK}")
    set_target_properties(${target} PROPERTIES JOB_POOL_COMPILE torch_pool)
    ttrace_unite_by_folder(${target} ${arg_TORCH})
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
  target_compile_definitions(${target} PRIVATE TTRACE_VERSION="${PROJECT_VERSION}")
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
  get_property(uses GLOBAL PROPERTY TTRACE_USES_${name})
  set(below ${uses})
  foreach(room IN LISTS uses)
    ttrace_rooms_below(further ${room})
    list(APPEND below ${further})
  endforeach()
  list(REMOVE_DUPLICATES below)
  set(${result} ${below} PARENT_SCOPE)
endfunction()
