// Files that stand under their final name only when they are whole and on the disk, and how such a
// file is opened again.
//
// A file is written under a temporary name; publish() makes it durable and renames it.
// Thread-safety: free functions without shared state.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ttrace {

// Ends a complaint about storage that refuses us.
inline constexpr const char* kStorageRemedy =
    "; make the folder writable, free space there, or set another TTRACE_DIR";

// Owns an open file.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor();
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;  // closes exactly once
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] bool valid() const { return descriptor_ >= 0; }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// NAME.tmp
[[nodiscard]] std::string temporary_name(const std::string& file);

// Text of an errno value.
[[nodiscard]] std::string system_error_text(int error);

// Creates the folder `file` lies in and opens `file`.tmp for writing. The descriptor holds a lock:
// a second writer of the same file is refused, while what a killed writer left is taken over.
// Throws FormatError with path, cause and remedy.
[[nodiscard]] FileDescriptor open_temporary(const std::string& file);

// Whether a process holds that lock on `path` itself, which means that its writer is alive.
[[nodiscard]] bool is_being_written(const std::string& path);

// Writes all of it. False where the storage refuses: errno says why.
[[nodiscard]] bool write_all(const FileDescriptor& out, std::span<const std::byte> bytes);

// Forces `file`.tmp, open as `descriptor`, to the disk and renames it to `file`. Throws
// FormatError.
void publish(const std::string& file, const FileDescriptor& descriptor);

// Writes a small text under its final name at once. Throws FormatError.
void write_text_file(const std::string& file, std::string_view text);

// Opens a regular file for reading. Throws FormatError for anything else: a pipe or a device under
// a file's name would be waited for or read without end. `remedy` ends the complaint.
[[nodiscard]] FileDescriptor open_regular(const std::string& file, std::string_view remedy = "");

// The whole of a regular file. Throws FormatError as open_regular() does.
[[nodiscard]] std::string read_text_file(const std::string& file, std::string_view remedy = "");

}  // namespace ttrace
