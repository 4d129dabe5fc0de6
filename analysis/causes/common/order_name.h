// What a wrong order of slices is called: turned by some places, reversed, zig-zag chunks that were
// not put back, two dimensions that changed places, a few exchanged.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

// The candidate's slice i is the reference's slice order[i].
using Order = std::vector<std::int64_t>;

[[nodiscard]] bool is_identity(const Order& order);
[[nodiscard]] bool is_permutation(const Order& order);

// The same order of the fewest equal blocks.
[[nodiscard]] Order coarsest(const Order& order);

// Whether a few words say all of it: an exchange, a turn, chunks in zig-zag, a reversal, an
// interleaving.
[[nodiscard]] bool has_name(const Order& order);
// Whether these words are that slices, seen as a x b, were read as b x a.
[[nodiscard]] bool is_interleaved(const Order& order);

// "blocks 0 <-> 1", "turned by 2 blocks", "reversed", "in the order of zig-zag chunks of 2 ranks";
// "permuted in 3 cycles, the longest of 4" or "blocks put in the place of others" where there is no
// better name. `unit` is the plural of what the slices are.
[[nodiscard]] std::string order_name(const Order& order, const std::string& unit);

}  // namespace ttrace
