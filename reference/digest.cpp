#include "digest.h"

#include <xxhash.h>

#include <cinttypes>
#include <cstdio>

namespace ttrace::reference {

void Digest::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Digest::Digest() : state_(XXH3_createState()) {
  XXH3_64bits_reset(state_.get());
}

void Digest::add(const void* bytes, std::size_t count) {
  XXH3_64bits_update(state_.get(), bytes, count);
}

std::string Digest::text() const {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, std::uint64_t{XXH3_64bits_digest(state_.get())});
  return text;
}

}  // namespace ttrace::reference
