// HDF5 handles that close themselves, and the one place where HDF5's return codes are checked.
//
// Thread-safety: one handle in one thread at a time. HDF5 keeps one error stack per thread.
#pragma once

#include <ttrace/error.h>

#include <hdf5.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace ttrace {

// Keeps HDF5 from printing its error stack in this thread as long as it lives; the program's own
// setting comes back afterwards.
class QuietHdf5 {
 public:
  QuietHdf5() {
    H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~QuietHdf5() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }
  QuietHdf5(const QuietHdf5&) = delete;  // restores exactly once
  QuietHdf5& operator=(const QuietHdf5&) = delete;

 private:
  H5E_auto2_t print_ = nullptr;
  void* data_ = nullptr;
};

// Why the last HDF5 call of this thread failed: the operating system's words where there are any,
// else the innermost entry of the error stack.
inline std::string hdf5_cause() {
  std::string cause;
  const auto take_innermost =
      [](unsigned depth, const H5E_error2_t* error, void* target) -> herr_t {
    if (depth == 0 && error->desc != nullptr) {
      *static_cast<std::string*>(target) = error->desc;
    }
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, &cause);
  constexpr std::string_view kSystemText = "error message = '";
  if (const auto begin = cause.find(kSystemText); begin != std::string::npos) {
    cause.erase(0, begin + kSystemText.size());
    cause.erase(cause.find('\''));
  }
  return cause.empty() ? "HDF5 gives no cause" : cause;
}

// Passes `result` on. Throws FormatError "PATH: cannot ACTION: CAUSE" where it is negative.
template <class Result>
Result hdf5_check(Result result, const std::string& path, std::string_view action) {
  static_assert(static_cast<Result>(-1) < 0, "unsigned results do not report failure this way");
  TTRACE_CHECK(result >= 0, FormatError, path, ": cannot ", action, ": ", hdf5_cause());
  return result;
}

// Owns one HDF5 identifier of any sort.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);

  Hdf5Id() = default;
  // Throws FormatError as hdf5_check() does if `id` is not a valid identifier.
  Hdf5Id(hid_t id, Close closer, const std::string& path, std::string_view action)
      : id_(hdf5_check(id, path, action)), close_(closer) {}
  ~Hdf5Id() {
    if (id_ >= 0) {
      close_(id_);
    }
  }
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  Hdf5Id(const Hdf5Id&) = delete;  // closes exactly once
  Hdf5Id& operator=(const Hdf5Id&) = delete;

  [[nodiscard]] hid_t get() const { return id_; }

  // Closes now, so that a failure is seen. Throws FormatError.
  void close(const std::string& path, std::string_view action) {
    hdf5_check(close_(std::exchange(id_, -1)), path, action);
  }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

// The type of texts of `bytes` bytes without a terminator; at least 1, as HDF5 demands.
inline Hdf5Id text_type(std::size_t bytes, const std::string& path) {
  constexpr const char* kAction = "describe a text";
  Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose, path, kAction);
  hdf5_check(H5Tset_size(type.get(), bytes), path, kAction);
  hdf5_check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), path, kAction);
  hdf5_check(H5Tset_cset(type.get(), H5T_CSET_UTF8), path, kAction);
  return type;
}

}  // namespace ttrace
