// The property that every fuzz target asserts: text or bytes from outside are refused with a
// sentence, or read and written back unchanged; nothing else happens.
//
// A target is an LLVMFuzzerTestOneInput, so that clang's libFuzzer runs it (-DTTRACE_FUZZ=ON);
// otherwise driver.cpp replays the corpus and mutates it.
#pragma once

#include <ttrace/error.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace ttrace::fuzz {

// Uncaught by design: libFuzzer aborts on it, the driver reports it.
class PropertyBroken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool property, const std::string& what) {
  if (!property) {
    throw PropertyBroken(what);
  }
}

// Runs `read`; a refusal that says something is as good as success. InternalError is not a refusal.
template <class Read>
void allow_refusal(Read read) {
  try {
    read();
  } catch (const UsageError& error) {
    require(!error.message().empty(), "a refusal without a word");
  } catch (const FormatError& error) {
    require(!error.message().empty(), "a refusal without a word");
  }
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace ttrace::fuzz
