#include "trace/file/hdf5_driver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <new>
#include <type_traits>
#include <unistd.h>

namespace ttrace {
namespace {

constexpr const char* kDriverAction = "set how the file is written";

// The data that a property list keeps about a driver; HDF5 copies it.
struct DriverInfo {
  WriteTarget* target;
};

// The data that HDF5 holds per open file. HDF5 fills in `base`, which must be the first member,
// because HDF5 hands a pointer to it to every callback.
struct OpenFile {
  H5FD_t base = {};
  WriteTarget* target = nullptr;
  haddr_t allocated = 0;  // end of what HDF5 has given out
  haddr_t written = 0;    // end of what was written
};
static_assert(std::is_standard_layout_v<OpenFile>);

OpenFile& from(H5FD_t* file) {
  return *reinterpret_cast<OpenFile*>(file);
}
const OpenFile& from(const H5FD_t* file) {
  return *reinterpret_cast<const OpenFile*>(file);
}

bool writable(const WriteTarget& target) {
  return target.error == 0 && target.owner == ::getpid();
}

H5FD_t* open(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*limit*/) {
  const void* info = H5Pget_driver_info(access);
  auto* file = info == nullptr ? nullptr : new (std::nothrow) OpenFile;
  if (file == nullptr) {
    return nullptr;
  }
  file->target = static_cast<const DriverInfo*>(info)->target;
  if (::ftruncate(file->target->descriptor, 0) != 0) {
    file->target->error = errno;
  }
  return &file->base;
}

herr_t close(H5FD_t* file) {
  delete &from(file);
  return 0;
}

herr_t query(const H5FD_t* /*file*/, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t get_allocated(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return from(file).allocated;
}

herr_t set_allocated(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t end) {
  from(file).allocated = end;
  return 0;
}

haddr_t get_written(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return from(file).written;
}

// Bytes that were never written, or not any more after a failure, read as zeros.
herr_t read(H5FD_t* file, H5FD_mem_t /*type*/, hid_t, haddr_t address, size_t size, void* buffer) {
  WriteTarget& target = *from(file).target;
  auto* position = static_cast<char*>(buffer);
  while (size > 0 && target.error == 0) {
    const ssize_t count = ::pread(target.descriptor, position, size, static_cast<off_t>(address));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      target.error = errno;
    }
    if (count <= 0) {
      break;
    }
    position += count;
    address += static_cast<haddr_t>(count);
    size -= static_cast<size_t>(count);
  }
  std::memset(position, 0, size);
  return 0;
}

herr_t write(
    H5FD_t* file, H5FD_mem_t /*type*/, hid_t, haddr_t address, size_t size, const void* buffer) {
  OpenFile& opened = from(file);
  WriteTarget& target = *opened.target;
  opened.written = std::max<haddr_t>(opened.written, address + size);
  const auto* position = static_cast<const char*>(buffer);
  while (size > 0 && writable(target)) {
    const ssize_t count = ::pwrite(target.descriptor, position, size, static_cast<off_t>(address));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      target.error = count < 0 ? errno : ENOSPC;
      break;
    }
    position += count;
    address += static_cast<haddr_t>(count);
    size -= static_cast<size_t>(count);
  }
  return 0;
}

// Brings the file to the length that HDF5 notes in it.
herr_t truncate(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  OpenFile& opened = from(file);
  if (opened.allocated == opened.written) {
    return 0;
  }
  opened.written = opened.allocated;
  if (writable(*opened.target) &&
      ::ftruncate(opened.target->descriptor, static_cast<off_t>(opened.allocated)) != 0) {
    opened.target->error = errno;
  }
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver = {};
#ifdef H5FD_CLASS_VERSION  // since HDF5 1.14
  driver.version = H5FD_CLASS_VERSION;
  driver.value = H5_VFD_RESERVED;  // the first that is not the library's own
#endif
  driver.name = "ttrace";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<off_t>::max());
  driver.fc_degree = H5F_CLOSE_SEMI;
  driver.fapl_size = sizeof(DriverInfo);
  driver.open = open;
  driver.close = close;
  driver.query = query;
  driver.get_eoa = get_allocated;
  driver.set_eoa = set_allocated;
  driver.get_eof = get_written;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  const H5FD_mem_t map[] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), driver.fl_map);
  return driver;
}

// HDF5 1.10 frees the class of a driver that nothing else refers to while it closes the last file,
// and reads it afterwards. So the driver stays registered, unless somebody closes the library.
hid_t registered_driver(const std::string& path) {
  static const H5FD_class_t driver = driver_class();
  static hid_t registered = H5I_INVALID_HID;
  if (H5Iis_valid(registered) <= 0 || H5Iget_type(registered) != H5I_VFL) {
    registered = H5FDregister(&driver);
    hdf5_check(registered, path, kDriverAction);
  }
  return registered;
}

}  // namespace

void use_write_target(hid_t access, WriteTarget* target, const std::string& path) {
  const DriverInfo info = {target};
  hdf5_check(H5Pset_driver(access, registered_driver(path), &info), path, kDriverAction);
}

}  // namespace ttrace
