# -DTTRACE_SELF_CONTAINED=PREFIX: the static libraries of this prefix, which cmake/libraries makes, become part of libttrace_torch.so
# and of the program. Both then need nothing but torch and the system's C and C++ libraries. Nobody else sees the names of these
# libraries, so that other copies of them (HDF5 in h5py) may be in the same process.
set(TTRACE_SELF_CONTAINED "" CACHE PATH "Prefix of static libraries that become part of ours; empty: the system's shared ones")
if(NOT TTRACE_SELF_CONTAINED)
  return()
endif()
list(PREPEND CMAKE_PREFIX_PATH ${TTRACE_SELF_CONTAINED})
set(Boost_USE_STATIC_LIBS ON)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
# find_package would ask the h5cc of the system.
set(HDF5_INCLUDE_DIRS ${TTRACE_SELF_CONTAINED}/include)
set(HDF5_C_LIBRARIES ${TTRACE_SELF_CONTAINED}/lib/libhdf5.a)
if(NOT EXISTS ${HDF5_C_LIBRARIES})
  message(FATAL_ERROR "${HDF5_C_LIBRARIES} does not exist. `./dev wheel` builds it; or leave out -DTTRACE_SELF_CONTAINED.")
endif()
add_link_options(-Wl,--gc-sections -Wl,--exclude-libs,libhdf5.a:libyaml-cpp.a:libspdlog.a:libfmt.a:libxxhash.a)
# See cmake/libraries/older_systems.cpp. At the end of every link line, where it serves what stands before it.
string(APPEND CMAKE_CXX_STANDARD_LIBRARIES " ${TTRACE_SELF_CONTAINED}/lib/libttrace_older_systems.a")
add_link_options(-Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,--wrap=hypot)
