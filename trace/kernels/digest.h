// A 128-bit digest of bytes that sees their order, made of blocks of 4 KiB: the same value from one
// thread of the host and from any number of threads of a GPU.
//
// Every 16 bytes of a block are multiplied into 128 bits under a key of their place in it, and
// these are added up. A block's sum is scrambled under a key of the block's number, and the blocks
// are added up. Sums are modulo 2^64, so their order changes nothing, while a value that moved to
// another place has another key. The digest tells accidents apart; it is no defence against
// somebody who looks for two equal ones.
#pragma once

#include "trace/base/host_device.h"
#include "trace/base/random.h"
#include "trace/kernels/grid.h"

#include <cstddef>
#include <cstdint>

namespace ttrace {

struct Digest {
  std::uint64_t low;
  std::uint64_t high;

  friend bool operator==(const Digest& left, const Digest& right) {
    return left.low == right.low && left.high == right.high;
  }
};

inline constexpr std::int64_t kDigestBlock = 4096;
inline constexpr int kDigestWords = static_cast<int>(kDigestBlock) / kPackBytes;  // of a block
inline constexpr int kDigestThreads = 64;  // of a team, which takes a block at a time

TTRACE_KERNEL std::int64_t digest_blocks(std::int64_t bytes) {
  return (bytes + kDigestBlock - 1) / kDigestBlock;
}

// The upper half of a product.
TTRACE_KERNEL std::uint64_t upper_product(std::uint64_t a, std::uint64_t b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>(static_cast<Wide>(a) * b >> 64U);
#endif
}

// Adds 16 bytes to a block's sum; `place` is their number in the block.
TTRACE_KERNEL void add_digest_word(const std::uint64_t (&word)[2], int place, Digest& sum) {
  const auto number = static_cast<std::uint64_t>(place);
  const std::uint64_t a = word[0] ^ random_bits(0, 2 * number);
  const std::uint64_t b = word[1] ^ random_bits(0, 2 * number + 1);
  // What a factor of zero would hide is added crosswise.
  sum.low += a * b + word[1];
  sum.high += upper_product(a, b) + word[0];
}

// What a block adds to the digest.
TTRACE_KERNEL Digest digest_of_block(const Digest& sum, std::int64_t block) {
  const auto number = static_cast<std::uint64_t>(block);
  Digest result;
  result.low = scramble(sum.low + random_bits(1, number));
  result.high = scramble((sum.high ^ result.low) + random_bits(2, number));
  return result;
}

TTRACE_KERNEL void add_digest(const Digest& from, Digest& to) {
  to.low += from.low;
  to.high += from.high;
}

// Ends the sum over all blocks.
TTRACE_KERNEL Digest finished_digest(const Digest& sum, std::int64_t bytes) {
  const auto size = static_cast<std::uint64_t>(bytes);
  Digest result;
  result.low = scramble(sum.low ^ random_bits(3, size));
  result.high = scramble(sum.high + result.low);
  return result;
}

// Reads 16 bytes of a tensor of `bytes` bytes; beyond its end there are zeros. `at_once`: the
// tensor starts a pack.
TTRACE_KERNEL void load_digest_word(const void* data,
                                    std::int64_t bytes,
                                    std::int64_t offset,
                                    bool at_once,
                                    std::uint64_t (&word)[2]) {
  const auto* const place = static_cast<const unsigned char*>(data) + offset;
#if defined(__CUDA_ARCH__)
  const bool whole = at_once && offset + kPackBytes <= bytes;
#else
  const bool whole = offset + kPackBytes <= bytes;
#endif
  if (whole) {
    load_elements<2>(place, at_once, word);
    return;
  }
  word[0] = word[1] = 0;
  for (int i = 0; i < kPackBytes && offset + i < bytes; ++i) {
    word[i / 8] |= std::uint64_t{place[i]} << (8U * static_cast<unsigned>(i % 8));
  }
}

// The kernel: adds the digests of a team's blocks to `sum` by `add(Digest)`, on one thread.
template <class Team, class Add>
TTRACE_HOST_DEVICE void sum_digest(Grid teams,
                                   const Team& team,
                                   Digest (&memory)[kDigestThreads],
                                   const void* data,
                                   std::int64_t bytes,
                                   const Add& add) {
  const bool at_once = starts_pack(data);
  Digest sum{};
  for (std::int64_t block = teams.first; block < digest_blocks(bytes); block += teams.stride) {
    team.each([&](int thread) {
      Digest part{};
      for (int place = thread; place < kDigestWords; place += kDigestThreads) {
        std::uint64_t word[2];
        load_digest_word(data, bytes, block * kDigestBlock + place * kPackBytes, at_once, word);
        add_digest_word(word, place, part);
      }
      memory[thread] = part;
    });
    for (int width = kDigestThreads / 2; width > 0; width /= 2) {
      team.each([&](int thread) {
        if (thread < width) {
          add_digest(memory[thread + width], memory[thread]);
        }
      });
    }
    team.each([&](int thread) {
      if (thread == 0) {
        add_digest(digest_of_block(memory[0], block), sum);
      }
    });
  }
  team.each([&](int thread) {
    if (thread == 0) {
      add(sum);
    }
  });
}

// On one thread of the host; `data` may lie at any address.
[[nodiscard]] Digest digest_of(const void* data, std::int64_t bytes);

}  // namespace ttrace
