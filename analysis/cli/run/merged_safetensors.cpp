#include "analysis/cli/run/merged_writer.h"
#include "trace/base/durable_file.h"

#include <ttrace/element_type.h>
#include <ttrace/error.h>

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

std::string_view safetensors_name(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return "F64";
    case ElementType::kF32:
      return "F32";
    case ElementType::kF16:
      return "F16";
    case ElementType::kBF16:
      return "BF16";
    case ElementType::kI64:
      return "I64";
    case ElementType::kI32:
      return "I32";
    case ElementType::kU8:
      return "U8";
    case ElementType::kBool:
      return "BOOL";
    case ElementType::kE4M3:
      return "F8_E4M3";
    case ElementType::kE5M2:
      return "F8_E5M2";
    case ElementType::kE8M0:
      return "F8_E8M0";
    case ElementType::kE2M1:  // its F4 has two to a byte
      return "U8";
  }
  return "";
}

// The header stands before the bytes and names all tensors, which are known at the end: their bytes
// wait in a file of their own.
class MergedSafetensors : public MergedWriter {
 public:
  MergedSafetensors(std::string file, const Manifest& manifest)
      : file_(std::move(file)), data_name_(file_ + ".data"), data_(open_temporary(data_name_)) {
    header_["__metadata__"] = {{"format", "pt"},
                               {"ttrace_pass", manifest.pass},
                               {"ttrace_precision", manifest.precision},
                               {"ttrace_world_size", std::to_string(manifest.world_size)}};
  }

  ~MergedSafetensors() override {
    std::error_code ignored;
    std::filesystem::remove(temporary_name(data_name_), ignored);
    if (!committed_) {
      std::filesystem::remove(temporary_name(file_), ignored);
    }
  }

  void append(const TensorId& id, const MergeResult& tensor) override {
    const std::uint64_t end = bytes_ + tensor.bytes.size();
    header_[to_string(id)] = {{"dtype", safetensors_name(tensor.type)},
                              {"shape", tensor.shape},
                              {"data_offsets", {bytes_, end}}};
    write(data_, data_name_, tensor.bytes);
    bytes_ = end;
  }

  void commit() override {
    std::string header = header_.dump();
    header.append((8 - header.size() % 8) % 8, ' ');  // so that the bytes are aligned
    std::array<std::byte, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) {
      length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xFFU);
    }
    const FileDescriptor out = open_temporary(file_);
    write(out, file_, length);
    write(out, file_, std::as_bytes(std::span(header)));
    copy_data(out);
    publish(file_, out);
    committed_ = true;
  }

 private:
  static void write(const FileDescriptor& out,
                    const std::string& name,
                    std::span<const std::byte> bytes) {
    TTRACE_CHECK(write_all(out, bytes),
                 FormatError,
                 "cannot write ",
                 name,
                 ": ",
                 system_error_text(errno),
                 "; free space there, or choose another file for -o");
  }

  void copy_data(const FileDescriptor& out) const {
    std::vector<std::byte> buffer(1 << 20);
    off_t at = 0;
    for (;;) {
      const ssize_t got = pread(data_.get(), buffer.data(), buffer.size(), at);
      TTRACE_CHECK(got >= 0,
                   FormatError,
                   "cannot read ",
                   temporary_name(data_name_),
                   ": ",
                   system_error_text(errno));
      if (got == 0) {
        return;
      }
      write(out, file_, std::span(buffer).first(static_cast<std::size_t>(got)));
      at += got;
    }
  }

  std::string file_;
  std::string data_name_;
  FileDescriptor data_;
  nlohmann::ordered_json header_;
  std::uint64_t bytes_ = 0;
  bool committed_ = false;
};

}  // namespace

std::unique_ptr<MergedWriter> merged_safetensors(const std::string& file,
                                                 const Manifest& manifest) {
  return std::make_unique<MergedSafetensors>(file, manifest);
}

}  // namespace ttrace
