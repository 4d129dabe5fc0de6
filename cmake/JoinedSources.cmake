# ttrace_joined_sources(target count): `count` files of the target are compiled as one, which parses the
# headers that they share (LibTorch, GoogleTest, JSON, Boost) and instantiates their templates once: a
# third of the time. Names in the files' anonymous namespaces must differ.
function(ttrace_joined_sources target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
endfunction()

# ttrace_joined_group(target file...): the same for chosen files, of a target whose other ones are compiled
# apart. Names in the anonymous namespaces of one group must differ; move a file to another group where they
# do not. Files with COMPILE_OPTIONS of their own are left apart by CMake.
function(ttrace_joined_group target first)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  string(MAKE_C_IDENTIFIER ${first} group)
  set_source_files_properties(${first} ${ARGN} PROPERTIES UNITY_GROUP ${group})
endfunction()
