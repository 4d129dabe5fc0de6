# A wheel carries these files in addition to the package's own: the library for each torch that the wheel serves, and the program.
# pip (pyproject.toml) installs the component `python` alone, into folders that scikit-build-core names.
if(NOT SKBUILD)
  return()
endif()
install(TARGETS ttrace RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
# `./dev wheel` has built the libraries for several versions of torch.
set(TTRACE_LIBRARIES_FOR_TORCH "" CACHE PATH "Folder with torch-2.13/libttrace_torch.so and the like; empty: build the library")
if(TTRACE_LIBRARIES_FOR_TORCH)
  install(DIRECTORY ${TTRACE_LIBRARIES_FOR_TORCH}/ DESTINATION ttrace/lib USE_SOURCE_PERMISSIONS COMPONENT python)
  return()
endif()
# The loader finds it next to torch's own libraries, wherever the wheel is installed.
set_target_properties(ttrace_torch PROPERTIES INSTALL_RPATH "$ORIGIN/../../../torch/lib" INSTALL_RPATH_USE_LINK_PATH OFF)
ttrace_torch_version(version)
set(folder ttrace/lib/torch-${version})
install(TARGETS ttrace_torch LIBRARY DESTINATION ${folder} COMPONENT python)
if(TTRACE_CUDA)
  install(TARGETS ttrace_cuda LIBRARY DESTINATION ${folder} COMPONENT python)
endif()
