// Digests (XXH3-64) of what a file of ours holds beside the bytes of tensors: its attributes and
// tables, by name. HDF5's own checksums cover neither rows nor long attributes.
//
// Thread-safety: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace ttrace {

// Of an attribute under its own name, of a table under its path, "/index".
using FileDigests = std::map<std::string, std::uint64_t>;

// JSON: {"/index": "0123456789abcdef"}.
[[nodiscard]] std::string to_text(const FileDigests& digests);
// Throws FormatError for any other text.
[[nodiscard]] FileDigests parse_digests(const std::string& text);

// Of bytes that come piece by piece.
class RunningDigest {
 public:
  RunningDigest();
  void add(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t value() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

[[nodiscard]] std::uint64_t digest_of_bytes(std::span<const std::byte> bytes);
[[nodiscard]] std::uint64_t digest_of_text(std::string_view text, std::uint64_t seed = 0);
// 16 hexadecimal digits.
[[nodiscard]] std::string digest_text(std::uint64_t digest);

}  // namespace ttrace
