#include "fake_device/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace ttrace::testing::fake {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kSmallestBlock = 512;

}  // namespace

Block* BlockCache::take(std::size_t size, StreamKey stream) {
  const std::unique_lock lock(executor_.mutex());
  if (size == 0) {
    return nullptr;
  }
  collect_waiting();
  const std::size_t capacity = std::bit_ceil(std::max(size, kSmallestBlock));
  const std::int64_t capture = executor_.capture_of(stream);
  MemoryStats& stats = stats_[stream.device];
  std::vector<Block*>& shelf = shelves_[{stream, capture, capacity}];
  Block* block = nullptr;
  if (shelf.empty()) {
    auto fresh = std::make_unique<Block>();
    fresh->address = static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity));
    if (fresh->address == nullptr) {
      throw std::bad_alloc();
    }
    std::memset(fresh->address, 0, capacity);
    fresh->capacity = capacity;
    fresh->stream = stream;
    fresh->capture = capture;
    block = fresh.get();
    blocks_.emplace(block->address, std::move(fresh));
  } else {
    block = shelf.back();
    shelf.pop_back();
    ++stats.reuses;
  }
  block->size = size;
  in_use_.insert(block);
  ++stats.allocations;
  stats.in_use += size;
  stats.peak = std::max(stats.peak, stats.in_use);
  return block;
}

void BlockCache::give_back(Block* block) {
  const std::unique_lock lock(executor_.mutex());
  stats_[block->stream.device].in_use -= block->size;
  in_use_.erase(block);
  if (block->users.empty()) {
    put_on_shelf(block);
    return;
  }
  record_users(*block);
  waiting_.push_back(block);
}

void BlockCache::record(Block* block, StreamKey user) {
  const std::unique_lock lock(executor_.mutex());
  if (user != block->stream) {
    block->users.insert(user);
  }
}

// An event of a stream that captures would never be done, so these are recorded later.
void BlockCache::record_users(Block& block) {
  if (executor_.any_capture()) {
    return;
  }
  for (const StreamKey& user : std::exchange(block.users, {})) {
    block.events.push_back(executor_.record(user));
  }
}

void BlockCache::collect_waiting() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    Block& block = **next;
    record_users(block);
    std::erase_if(block.events,
                  [this](const SignalRef& event) { return executor_.is_done(event); });
    if (block.users.empty() && block.events.empty()) {
      put_on_shelf(&block);
      next = waiting_.erase(next);
    } else {
      ++next;
    }
  }
}

void BlockCache::put_on_shelf(Block* block) {
  shelves_[{block->stream, block->capture, block->capacity}].push_back(block);
}

Block* BlockCache::find(const void* address) const {
  const std::unique_lock lock(executor_.mutex());
  auto next = blocks_.upper_bound(static_cast<const std::byte*>(address));
  if (next == blocks_.begin()) {
    return nullptr;
  }
  Block* const block = std::prev(next)->second.get();
  const bool inside = static_cast<const std::byte*>(address) < block->address + block->capacity;
  return inside && in_use_.contains(block) ? block : nullptr;
}

MemoryStats BlockCache::stats(int device) const {
  const std::unique_lock lock(executor_.mutex());
  const auto found = stats_.find(device);
  MemoryStats result = found == stats_.end() ? MemoryStats() : found->second;
  result.waiting = static_cast<std::size_t>(
      std::count_if(waiting_.begin(), waiting_.end(), [device](const Block* block) {
        return block->stream.device == device;
      }));
  return result;
}

void BlockCache::reset_stats() {
  const std::unique_lock lock(executor_.mutex());
  for (auto& [device, stats] : stats_) {
    stats = {stats.in_use, stats.in_use, 0, 0, 0};
  }
}

void BlockCache::clear() {
  const std::unique_lock lock(executor_.mutex());
  collect_waiting();
  for (auto& [key, shelf] : shelves_) {
    for (Block* block : std::exchange(shelf, {})) {
      std::free(block->address);
      blocks_.erase(block->address);
    }
  }
}

}  // namespace ttrace::testing::fake
