#include "trace/kernels/digest.h"

namespace ttrace {

Digest digest_of(const void* data, std::int64_t bytes) {
  const bool at_once = starts_pack(data);
  Digest total{};
  for (std::int64_t block = 0; block < digest_blocks(bytes); ++block) {
    Digest sum{};
    for (int place = 0; place < kDigestWords; ++place) {
      std::uint64_t word[2];
      load_digest_word(data, bytes, block * kDigestBlock + place * kPackBytes, at_once, word);
      add_digest_word(word, place, sum);
    }
    add_digest(digest_of_block(sum, block), total);
  }
  return finished_digest(total, bytes);
}

}  // namespace ttrace
