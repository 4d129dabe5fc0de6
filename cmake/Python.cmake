# A wheel carries these files in addition to the package's own: the library, a note of the torch that it was built for, and the program.
# pip (pyproject.toml) installs the component `python` alone, into folders that scikit-build-core names.
if(NOT SKBUILD)
  return()
endif()
# The loader finds it next to torch's own libraries, wherever the wheel is installed.
set_target_properties(ttrace_torch PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib" INSTALL_RPATH_USE_LINK_PATH OFF)
ttrace_torch_version(version)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/built_for.json "{\"torch\": \"${version}\"}\n")
install(TARGETS ttrace_torch LIBRARY DESTINATION ttrace/lib COMPONENT python)
if(TTRACE_CUDA)
  install(TARGETS ttrace_cuda LIBRARY DESTINATION ttrace/lib COMPONENT python)
endif()
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/built_for.json DESTINATION ttrace/lib COMPONENT python)
install(TARGETS ttrace RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
