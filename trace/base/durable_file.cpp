#include "trace/base/durable_file.h"

#include <ttrace/error.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace ttrace {
namespace {

std::filesystem::path folder_of(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  return folder.empty() ? std::filesystem::path(".") : folder;
}

void sync(int descriptor, const std::string& path) {
  TTRACE_CHECK(::fsync(descriptor) == 0,
               FormatError,
               path,
               ": the file cannot be forced to the disk: ",
               system_error_text(errno),
               kStorageRemedy);
}

// An open-file-description lock, so that it neither depends on the process nor meets HDF5's flock.
// File systems without locks give ENOLCK or the like: then two writers go unnoticed.
bool locked_by_another(int descriptor) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(descriptor, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES);
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (valid()) {
    ::close(descriptor_);
  }
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::string temporary_name(const std::string& file) {
  return file + ".tmp";
}

std::string system_error_text(int error) {
  return std::generic_category().message(error);
}

FileDescriptor open_temporary(const std::string& file) {
  std::error_code error;
  const std::filesystem::path folder = folder_of(file);
  std::filesystem::create_directories(folder, error);
  TTRACE_CHECK(!error,
               FormatError,
               folder.string(),
               ": the folder cannot be created: ",
               error.message(),
               kStorageRemedy);
  const std::string temporary = temporary_name(file);
  FileDescriptor descriptor(::open(temporary.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  TTRACE_CHECK(descriptor.valid(),
               FormatError,
               temporary,
               ": the file cannot be opened for writing: ",
               system_error_text(errno),
               kStorageRemedy);
  TTRACE_CHECK(!locked_by_another(descriptor.get()),
               FormatError,
               temporary,
               ": another process is writing this file; give every process its own rank, and every "
               "run its own TTRACE_DIR");
  return descriptor;
}

bool is_being_written(const std::string& path) {
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return descriptor.valid() && ::fcntl(descriptor.get(), F_OFD_GETLK, &lock) == 0 &&
         lock.l_type != F_UNLCK;
}

void publish(const std::string& file, const FileDescriptor& descriptor) {
  const std::string temporary = temporary_name(file);
  sync(descriptor.get(), temporary);
  TTRACE_CHECK(::rename(temporary.c_str(), file.c_str()) == 0,
               FormatError,
               temporary,
               ": the file cannot be renamed to ",
               file,
               ": ",
               system_error_text(errno));
  // The new name itself is durable only after the folder is on the disk.
  const std::string folder = folder_of(file).string();
  const FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  TTRACE_CHECK(opened.valid(),
               FormatError,
               folder,
               ": the folder cannot be opened: ",
               system_error_text(errno));
  sync(opened.get(), folder);
}

bool write_all(const FileDescriptor& out, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(out.get(), bytes.data(), bytes.size());
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

void write_text_file(const std::string& file, std::string_view text) {
  const FileDescriptor descriptor = open_temporary(file);
  const bool written = ::ftruncate(descriptor.get(), 0) == 0 &&
                       write_all(descriptor, std::as_bytes(std::span(text)));
  TTRACE_CHECK(written,
               FormatError,
               temporary_name(file),
               ": the file cannot be written: ",
               system_error_text(errno),
               kStorageRemedy);
  publish(file, descriptor);
}

FileDescriptor open_regular(const std::string& file, std::string_view remedy) {
  // O_NONBLOCK: a pipe without a writer opens at once, and is then refused.
  FileDescriptor descriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  TTRACE_CHECK(descriptor.valid(),
               FormatError,
               file,
               ": the file cannot be opened: ",
               system_error_text(errno),
               remedy);
  struct stat status = {};
  TTRACE_CHECK(::fstat(descriptor.get(), &status) == 0 && S_ISREG(status.st_mode),
               FormatError,
               file,
               ": this is not a regular file",
               remedy);
  return descriptor;
}

std::string read_text_file(const std::string& file, std::string_view remedy) {
  const FileDescriptor descriptor = open_regular(file, remedy);
  std::string text;
  std::array<char, 65536> block{};
  ssize_t count = 0;
  while ((count = ::read(descriptor.get(), block.data(), block.size())) != 0) {
    TTRACE_CHECK(count > 0 || errno == EINTR,
                 FormatError,
                 file,
                 ": the file cannot be read: ",
                 system_error_text(errno),
                 remedy);
    text.append(block.data(), static_cast<std::size_t>(count > 0 ? count : 0));
  }
  return text;
}

}  // namespace ttrace
