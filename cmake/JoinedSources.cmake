# ttrace_joined_sources(target count): `count` files of the target, or all if it is 0, are compiled as one, which parses the
# headers that they share (LibTorch, GoogleTest, JSON, Boost) and instantiates their templates once: a
# third of the time.
function(ttrace_joined_sources target count)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${count})
endfunction()
