# The sources of the adapter, which the Python package brings along, so that it can be compiled where torch is of a version that did
# not exist when the package was made (python/ttrace/_adapter.py).
get_property(rooms GLOBAL PROPERTY TTRACE_ADAPTER_ROOMS)
foreach(room IN LISTS rooms)
  get_target_property(files ${room} SOURCES)
  get_target_property(folder ${room} SOURCE_DIR)
  foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH room_folder)
    install(FILES ${folder}/${file} DESTINATION ttrace/adapter/hooks/${room_folder} COMPONENT python EXCLUDE_FROM_ALL)
  endforeach()
endforeach()
install(DIRECTORY include hooks trace DESTINATION ttrace/adapter COMPONENT python EXCLUDE_FROM_ALL FILES_MATCHING PATTERN "*.h")
install(FILES cmake/exports.map DESTINATION ttrace/adapter/cmake COMPONENT python EXCLUDE_FROM_ALL)
