// HDF5 writes to our files through a driver of ours that never reports a failed write to it.
//
// Why: HDF5 1.10.8 cannot close a file whose last writes fail (a full disk). H5Fclose leaves a
// freed file behind, and the process dies at exit() with a segmentation fault: the training program
// that is being traced. So the driver keeps the first failure for us, drops everything after it and
// tells HDF5 that all is well.
//
// Thread-safety: one thread at a time.
#pragma once

#include "trace/file/hdf5_id.h"

#include <string>
#include <sys/types.h>

namespace ttrace {

// The target of a file's bytes. Must outlive the HDF5 file.
struct WriteTarget {
  int descriptor = -1;  // open for reading and writing
  pid_t owner = 0;      // a forked child that ends by exit() closes HDF5's files: it must not write
  int error = 0;        // errno of the first failed call, 0 so far
};

// Makes files created with `access` write to `target`. Throws FormatError with `path`.
void use_write_target(hid_t access, WriteTarget* target, const std::string& path);

}  // namespace ttrace
