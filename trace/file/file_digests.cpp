#include "trace/file/file_digests.h"

#include <ttrace/error.h>

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <new>

namespace ttrace {
namespace {

constexpr std::size_t kDigits = 16;

std::uint64_t parse_digest(const std::string& text) {
  std::uint64_t digest = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, digest, 16);
  TTRACE_CHECK(text.size() == kDigits && error == std::errc() && last == end,
               FormatError,
               "'",
               text,
               "' is not a digest of ",
               kDigits,
               " hexadecimal digits");
  return digest;
}

}  // namespace

std::string to_text(const FileDigests& digests) {
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [name, digest] : digests) {
    object[name] = digest_text(digest);
  }
  return object.dump();
}

FileDigests parse_digests(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  TTRACE_CHECK(object.is_object(), FormatError, "the digests are not an object of texts");
  FileDigests digests;
  for (const auto& [name, digest] : object.items()) {
    TTRACE_CHECK(digest.is_string(), FormatError, "the digest of '", name, "' is not text");
    digests.emplace(name, parse_digest(digest.get<std::string>()));
  }
  return digests;
}

RunningDigest::RunningDigest() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_64bits_reset(state_.get()) != XXH_OK) {
    throw std::bad_alloc();
  }
}

void RunningDigest::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::uint64_t RunningDigest::value() const {
  return XXH3_64bits_digest(state_.get());
}

void RunningDigest::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

std::uint64_t digest_of_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t digest_of_text(std::string_view text, std::uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::string digest_text(std::uint64_t digest) {
  std::array<char, kDigits + 1> text = {};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  return text.data();
}

}  // namespace ttrace
