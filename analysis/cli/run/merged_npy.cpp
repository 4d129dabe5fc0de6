#include "analysis/cli/run/merged_writer.h"

#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

namespace ttrace {
namespace {

// numpy's name of a type; empty for those that become F32.
std::string_view npy_name(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return "<f8";
    case ElementType::kF32:
      return "<f4";
    case ElementType::kI64:
      return "<i8";
    case ElementType::kI32:
      return "<i4";
    case ElementType::kU8:
      return "|u1";
    case ElementType::kBool:
      return "|b1";
    default:
      return "";
  }
}

// Version 1.0 of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
std::string npy_header(std::string_view type, const std::vector<std::int64_t>& shape) {
  std::string sizes;
  for (const std::int64_t size : shape) {
    sizes += fmt::format("{}, ", size);
  }
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type, sizes);
  constexpr std::size_t kBefore = 10;  // magic, version, length
  constexpr std::size_t kAlignment = 64;
  text.append(kAlignment - 1 - (kBefore + text.size()) % kAlignment, ' ');
  text += '\n';
  std::string header = "\x93NUMPY";
  header += {
      '\x01', '\x00', static_cast<char>(text.size() & 0xFFU), static_cast<char>(text.size() >> 8U)};
  return header + text;
}

class MergedNpy : public MergedWriter {
 public:
  explicit MergedNpy(std::string folder)
      : folder_(std::move(folder)), temporary_(folder_ + ".tmp") {
    std::error_code error;
    fs::remove_all(temporary_, error);
    fs::create_directories(temporary_, error);
    TTRACE_CHECK(!error, FormatError, "cannot make the folder ", temporary_, ": ", error.message());
  }

  ~MergedNpy() override {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }

  void append(const TensorId& id, const MergeResult& tensor) override {
    const fs::path file = temporary_ + "/" + to_string(id) + ".npy";
    fs::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    if (const std::string_view type = npy_name(tensor.type); !type.empty()) {
      out << npy_header(type, tensor.shape);
      write(out, tensor.bytes.data(), tensor.bytes.size());
    } else {
      const std::size_t count = tensor.bytes.size() / element_size(tensor.type);
      std::vector<double> wide(count);
      to_double(tensor.type, tensor.bytes.data(), static_cast<std::int64_t>(count), wide.data());
      const std::vector<float> values(wide.begin(), wide.end());
      out << npy_header("<f4", tensor.shape);
      write(out, values.data(), count * sizeof(float));
    }
    TTRACE_CHECK(out.flush(),
                 FormatError,
                 "cannot write ",
                 file.string(),
                 "; free space there, or choose another folder for -o");
  }

  void commit() override {
    std::error_code error;
    fs::rename(temporary_, folder_, error);
    TTRACE_CHECK(
        !error, FormatError, "cannot rename ", temporary_, " to ", folder_, ": ", error.message());
  }

 private:
  static void write(std::ostream& out, const void* data, std::size_t bytes) {
    out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
  }

  std::string folder_;
  std::string temporary_;
};

}  // namespace

std::unique_ptr<MergedWriter> merged_npy(const std::string& folder) {
  return std::make_unique<MergedNpy>(folder);
}

}  // namespace ttrace
