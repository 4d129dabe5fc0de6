// Blocks of memory that are reused at once: what the host freed last is handed out first. It orders
// by streams as a caching allocator of an accelerator does. A freed block goes back to the stream
// it was allocated for, whatever is still enqueued there. Only streams that were recorded on the
// block delay its reuse, until what they had enqueued at the time of freeing is done.
//
// Thread-safety: guarded by the executor's mutex. Sizes are in bytes.
#pragma once

#include "fake_device/executor.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

namespace ttrace::testing::fake {

struct MemoryStats {
  std::size_t in_use = 0;       // as asked for, without what freed blocks hold
  std::size_t peak = 0;         // highest in_use since the last reset
  std::size_t allocations = 0;  // since the last reset
  std::size_t reuses = 0;       // allocations that a freed block served
  std::size_t waiting = 0;      // blocks that were freed and wait for a recorded stream
};

struct Block {
  std::byte* address = nullptr;
  std::size_t capacity = 0;  // a power of two
  std::size_t size = 0;      // as asked for
  StreamKey stream;
  std::int64_t capture = 0;   // memory of a captured graph stays apart, because replays write to it
  std::set<StreamKey> users;  // recorded streams
  std::vector<SignalRef> events;  // ends of the users' work, once freed
};

class BlockCache {
 public:
  explicit BlockCache(Executor& executor) : executor_(executor) {}

  // Returns null for 0 bytes. Aligned to 64 bytes, as torch's memory on the host is. Fresh memory
  // is zero, reused memory holds what was there.
  [[nodiscard]] Block* take(std::size_t size, StreamKey stream);
  void give_back(Block* block);
  // Work on `user` reads or writes the block.
  void record(Block* block, StreamKey user);
  // The block in use that holds the address, or null.
  [[nodiscard]] Block* find(const void* address) const;

  [[nodiscard]] MemoryStats stats(int device) const;
  void reset_stats();
  // Frees what waits for reuse. Requires: no work is pending that uses it.
  void clear();

 private:
  using Shelf = std::tuple<StreamKey, std::int64_t, std::size_t>;  // stream, capture, capacity

  void put_on_shelf(Block* block);
  void collect_waiting();
  void record_users(Block& block);

  Executor& executor_;
  std::map<const std::byte*, std::unique_ptr<Block>> blocks_;
  std::map<Shelf, std::vector<Block*>> shelves_;
  std::list<Block*> waiting_;
  std::set<const Block*> in_use_;
  std::map<int, MemoryStats> stats_;  // by device
};

}  // namespace ttrace::testing::fake
