// A file in memory.
//
// Thread-safety: read-only after construction.
#pragma once

#include "trace/base/durable_file.h"
#include "trace/file/hdf5_input.h"

#include <ttrace/error.h>

#include <cerrno>
#include <cstddef>
#include <sys/mman.h>

namespace ttrace {

// A whole file in memory, read-only.
class Mapping {
 public:
  explicit Mapping(const Hdf5Input& file) : size_(file.size()) {
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
    TTRACE_CHECK(address != MAP_FAILED,
                 FormatError,
                 file.path(),
                 ": the file cannot be mapped into memory: ",
                 system_error_text(errno));
    begin_ = static_cast<const std::byte*>(address);
  }
  ~Mapping() { ::munmap(const_cast<std::byte*>(begin_), size_); }
  Mapping(const Mapping&) = delete;  // unmaps exactly once
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] const std::byte* begin() const { return begin_; }

 private:
  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace ttrace
