// A finished HDF5 file of ours, opened for reading with every claim in it checked against its size.
//
// Thread-safety: one thread at a time.
#pragma once

#include "trace/base/durable_file.h"
#include "trace/file/file_digests.h"
#include "trace/file/hdf5_id.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

// The place of a contiguous dataset in the file.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

class Hdf5Input {
 public:
  // Throws FormatError for a file that is absent, no HDF5, truncated, not ours or of a newer
  // format. Attributes and tables that are read must have the digests that the file names for them.
  explicit Hdf5Input(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

  // False in a file of an earlier version, and in one that its writer did not finish.
  [[nodiscard]] bool has_digests() const { return digests_.has_value(); }
  // Throws FormatError where the file names another digest for `name`, or none beside others.
  void check_digest(const std::string& name, std::uint64_t digest) const;

  // Attributes of the root group. Throw FormatError for an absent one or one of another type.
  [[nodiscard]] std::int64_t integer_attribute(const char* name) const;
  [[nodiscard]] std::string text_attribute(const char* name) const;
  [[nodiscard]] bool has_attribute(const char* name) const;

  // Throws FormatError.
  [[nodiscard]] Hdf5Id open_dataset(const std::string& name) const;
  [[nodiscard]] bool has_dataset(const std::string& name) const;
  // The digest of what lies there, as the file holds it. Throws FormatError.
  [[nodiscard]] std::uint64_t digest_at(const Extent& extent) const;
  // Throws FormatError for a dataset that is not contiguous or reaches past the end of the file.
  [[nodiscard]] Extent extent_of(const Hdf5Id& dataset, const std::string& name) const;

  // "PATH: is damaged: CAUSE; REMEDY".
  [[noreturn]] void throw_damaged(const std::string& cause) const;
  // Passes the result of an HDF5 call that reads the file on. Throws FormatError if it failed.
  template <class Result>
  Result check(Result result, std::string_view action) const {
    if (result < 0) {
      throw_damaged("cannot " + std::string(action) + ": " + hdf5_cause());
    }
    return result;
  }

 private:
  void check_signature() const;
  void check_version() const;
  void read_digests();
  void check_not_lost(const std::string& name) const;
  [[nodiscard]] Hdf5Id open_attribute(const char* name) const;

  std::string path_;
  FileDescriptor descriptor_;
  std::uint64_t size_ = 0;
  Hdf5Id hdf5_;
  std::optional<FileDigests> digests_;
};

}  // namespace ttrace
