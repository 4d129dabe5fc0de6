// An HDF5 file that is being written, under a temporary name until finish().
//
// HDF5 does not notice writes that the system refuses (see hdf5_driver.h), but check_written()
// does. Thread-safety: one thread at a time.
#pragma once

#include "trace/base/durable_file.h"
#include "trace/file/file_digests.h"
#include "trace/file/hdf5_driver.h"
#include "trace/file/hdf5_id.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ttrace {

class Hdf5Output {
 public:
  // Creates the folder and `file`.tmp. Whatever takes `aligned_from` bytes or more begins at a
  // multiple of `alignment`. Throws FormatError.
  Hdf5Output(std::string file, std::size_t aligned_from, std::size_t alignment);

  [[nodiscard]] hid_t id() const { return hdf5_.get(); }
  // Name under which the bytes are now; errors name it.
  [[nodiscard]] const std::string& path() const { return temporary_; }

  // Attributes of the root group, whose digests the file gets, or of the dataset `object`. Throw
  // FormatError.
  void write_attribute(const char* name, std::int32_t value);
  void write_attribute(const char* name, std::uint64_t value);
  void write_attribute(const char* name, const std::string& text, const char* object = "/");

  // Lets the file say which digest a table has, or whatever else a reader must find unchanged.
  void protect(const std::string& name, std::uint64_t digest) { digests_[name] = digest; }
  // Removes a table and its digest. Throws FormatError.
  void remove(const std::string& table);

  // Throws FormatError with the system's words where any write so far failed.
  void check_written() const;

  // Makes everything that was written so far survive the death of the process. Throws FormatError.
  void flush();

  // Writes the digests, closes, forces to the disk, renames. Requires: every object in the file is
  // closed. Throws FormatError; then nothing is renamed.
  void finish();

 private:
  std::string file_;
  std::string temporary_;
  FileDescriptor lock_;  // also where the bytes go
  std::unique_ptr<WriteTarget> target_;
  Hdf5Id hdf5_;
  FileDigests digests_;
};

// A list of properties of datasets whose bytes lie in the file in one piece, unfilled and undated.
[[nodiscard]] Hdf5Id contiguous_dataset_properties(const std::string& path);

}  // namespace ttrace
