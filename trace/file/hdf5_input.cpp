#include "trace/file/hdf5_input.h"

#include "trace/file/hdf5_format.h"
#include "trace/file/manifest.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace ttrace {
namespace {

std::uint64_t size_of(const FileDescriptor& descriptor, const std::string& path) {
  struct stat status = {};
  TTRACE_CHECK(::fstat(descriptor.get(), &status) == 0,
               FormatError,
               path,
               ": the file cannot be examined: ",
               system_error_text(errno));
  return static_cast<std::uint64_t>(status.st_size);
}

// After HDF5 1.10 has met damage, it cannot free everything and complains about that at exit
// ("infinite loop closing library"), after our own sentence and to no use. This handler is
// registered after HDF5's own, so it runs first.
void be_quiet_at_exit() {
  H5open();
  std::atexit([] { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); });
}

Hdf5Id open_hdf5(const std::string& path) {
  static std::once_flag once;
  std::call_once(once, be_quiet_at_exit);
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, path, "set how the file is read");
  // A finished file never changes, and read-only folders refuse locks.
  hdf5_check(H5Pset_file_locking(access.get(), false, true), path, "set how the file is read");
  return {H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, path, "open the file"};
}

}  // namespace

Hdf5Input::Hdf5Input(const std::string& path)
    : path_(path), descriptor_(open_regular(path)), size_(size_of(descriptor_, path)) {
  check_signature();
  try {
    hdf5_ = open_hdf5(path);
  } catch (const FormatError& error) {
    TTRACE_THROW(FormatError,
                 error.message(),
                 "; the file is damaged or truncated: remove the trace and run the pass again");
  }
  check_version();
  read_digests();
}

void Hdf5Input::throw_damaged(const std::string& cause) const {
  TTRACE_THROW(FormatError,
               path_,
               ": the file is damaged: ",
               cause,
               "; remove the trace and run the pass again");
}

void Hdf5Input::check_signature() const {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  char begin[kSignature.size()] = {};
  const ssize_t count = ::pread(descriptor_.get(), begin, sizeof begin, 0);
  TTRACE_CHECK(count == sizeof begin && std::string_view(begin, sizeof begin) == kSignature,
               FormatError,
               path_,
               ": this is not an HDF5 file (",
               size_,
               " bytes); remove it and run the pass again");
}

void Hdf5Input::check_version() const {
  TTRACE_CHECK(H5Aexists(hdf5_.get(), kFormatAttribute) > 0,
               FormatError,
               path_,
               ": TTrace did not write this HDF5 file: attribute '",
               kFormatAttribute,
               "' is absent");
  const std::int64_t version = integer_attribute(kFormatAttribute);
  TTRACE_CHECK(version <= kFormatVersion,
               FormatError,
               path_,
               ": a newer TTrace wrote this file (format ",
               version,
               ", but this program reads ",
               kFormatVersion,
               "); read it with that version");
  if (version < 1) {
    throw_damaged("its format version is " + std::to_string(version));
  }
}

void Hdf5Input::read_digests() {
  if (!has_attribute(kDigestsAttribute)) {
    return;
  }
  const std::string text = text_attribute(kDigestsAttribute);
  try {
    digests_ = parse_digests(text);
  } catch (const FormatError& error) {
    throw_damaged(std::string("attribute '") + kDigestsAttribute + "': " + error.message());
  }
}

void Hdf5Input::check_digest(const std::string& name, std::uint64_t digest) const {
  if (!digests_) {
    return;
  }
  const auto found = digests_->find(name);
  if (found == digests_->end()) {
    throw_damaged("its writer noted no digest of '" + name + "'");
  }
  if (found->second != digest) {
    throw_damaged("'" + name + "' has changed since it was written: its digest differs");
  }
}

// Whatever has a digest was there.
void Hdf5Input::check_not_lost(const std::string& name) const {
  if (digests_ && digests_->contains(name)) {
    throw_damaged("'" + name + "', which its writer wrote, is absent");
  }
}

std::uint64_t Hdf5Input::digest_at(const Extent& extent) const {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  std::vector<std::byte> block(std::min(extent.bytes, kBlock));
  RunningDigest digest;
  for (std::uint64_t done = 0; done < extent.bytes;) {
    const ssize_t count = ::pread(descriptor_.get(),
                                  block.data(),
                                  std::min(extent.bytes - done, kBlock),
                                  static_cast<off_t>(extent.offset + done));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      throw_damaged("it cannot be read: " +
                    (count < 0 ? system_error_text(errno) : std::string("it was cut short")));
    }
    digest.add(std::span(block).first(static_cast<std::size_t>(count)));
    done += static_cast<std::uint64_t>(count);
  }
  return digest.value();
}

Hdf5Id Hdf5Input::open_attribute(const char* name) const {
  if (H5Aexists(hdf5_.get(), name) <= 0) {
    throw_damaged(std::string("attribute '") + name + "' is absent");
  }
  Hdf5Id attribute(check(H5Aopen(hdf5_.get(), name, H5P_DEFAULT), "open an attribute"),
                   H5Aclose,
                   path_,
                   "open an attribute");
  const Hdf5Id space(H5Aget_space(attribute.get()), H5Sclose, path_, "read an attribute");
  if (H5Sget_simple_extent_npoints(space.get()) != 1) {
    throw_damaged(std::string("attribute '") + name + "' is not a single value");
  }
  return attribute;
}

std::int64_t Hdf5Input::integer_attribute(const char* name) const {
  const Hdf5Id attribute = open_attribute(name);
  const Hdf5Id type(H5Aget_type(attribute.get()), H5Tclose, path_, "read an attribute");
  if (H5Tget_class(type.get()) != H5T_INTEGER) {
    throw_damaged(std::string("attribute '") + name + "' is not an integer");
  }
  std::int64_t value = 0;
  check(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "read an attribute");
  check_digest(name, digest_of_text(std::to_string(value)));
  return value;
}

std::string Hdf5Input::text_attribute(const char* name) const {
  const Hdf5Id attribute = open_attribute(name);
  const Hdf5Id type(H5Aget_type(attribute.get()), H5Tclose, path_, "read an attribute");
  const std::size_t bytes = H5Tget_size(type.get());
  if (H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      bytes > size_) {
    throw_damaged(std::string("attribute '") + name + "' is not a text of fixed length");
  }
  std::string text(bytes, '\0');
  check(H5Aread(attribute.get(), type.get(), text.data()), "read an attribute");
  text.resize(::strnlen(text.data(), bytes));
  check_digest(name, digest_of_text(text));
  return text;
}

bool Hdf5Input::has_attribute(const char* name) const {
  const bool exists = check(H5Aexists(hdf5_.get(), name), "look for an attribute") > 0;
  if (!exists) {
    check_not_lost(name);
  }
  return exists;
}

bool Hdf5Input::has_dataset(const std::string& name) const {
  const bool exists = H5Lexists(hdf5_.get(), name.c_str(), H5P_DEFAULT) > 0;
  if (!exists) {
    check_not_lost(name);
  }
  return exists;
}

Hdf5Id Hdf5Input::open_dataset(const std::string& name) const {
  const std::string action = "open dataset '" + name + "'";
  return {check(H5Dopen2(hdf5_.get(), name.c_str(), H5P_DEFAULT), action), H5Dclose, path_, action};
}

Extent Hdf5Input::extent_of(const Hdf5Id& dataset, const std::string& name) const {
  const Hdf5Id creation(
      H5Dget_create_plist(dataset.get()), H5Pclose, path_, "read a dataset's layout");
  const haddr_t offset = H5Dget_offset(dataset.get());
  if (H5Pget_layout(creation.get()) != H5D_CONTIGUOUS ||
      H5Pget_external_count(creation.get()) != 0 || offset == HADDR_UNDEF) {
    throw_damaged("dataset '" + name + "' is not contiguous in the file");
  }
  const hsize_t bytes = H5Dget_storage_size(dataset.get());
  if (offset > size_ || bytes > size_ - offset) {
    throw_damaged("dataset '" + name + "' reaches past the end of the file");
  }
  return {offset, bytes};
}

}  // namespace ttrace
