# `cmake --install`: the capture library, its headers, the program `ttrace`, and the package that
# find_package(ttrace) reads. libttrace.so and libttrace_torch.so hold everything that the headers declare.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(TTRACE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ttrace)

# The installed program and library run where LibTorch and HDF5 were found, with no variable set.
set_target_properties(ttrace_core ttrace_torch ttrace PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
set_target_properties(ttrace_torch PROPERTIES EXPORT_NAME ttrace INSTALL_RPATH "$ORIGIN")
set_target_properties(ttrace_core PROPERTIES EXPORT_NAME core)
install(TARGETS ttrace RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ttrace_core ttrace_torch EXPORT ttraceTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES man/ttrace.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY include/ttrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT ttraceTargets NAMESPACE ttrace:: DESTINATION ${TTRACE_PACKAGE_DIR})

ttrace_torch_version(TTRACE_BUILT_TORCH_VERSION)
configure_package_config_file(cmake/ttraceConfig.cmake.in ttraceConfig.cmake
  INSTALL_DESTINATION ${TTRACE_PACKAGE_DIR})
write_basic_package_version_file(ttraceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/ttraceConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/ttraceConfigVersion.cmake
  cmake/Torch.cmake
  cmake/TorchCuda.cmake
  DESTINATION ${TTRACE_PACKAGE_DIR})
install(DIRECTORY cmake/cuda_handles DESTINATION ${TTRACE_PACKAGE_DIR})
# The library looks for its kernels next to itself.
if(TTRACE_CUDA)
  install(TARGETS ttrace_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
