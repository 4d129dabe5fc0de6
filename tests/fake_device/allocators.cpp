// The device's and the pinned host memory's allocators, as torch asks for them.
#include "fake_device/runtime.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace ttrace::testing::fake {
namespace {

std::atomic<bool> poison_memory = true;

void free_device_block(void* block) {
  if (block != nullptr) {
    device_blocks().give_back(static_cast<Block*>(block));
  }
}

void free_pinned_block(void* block) {
  if (block != nullptr) {
    pinned_blocks().give_back(static_cast<Block*>(block));
  }
}

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t size) override {
    const c10::Device current = c10::impl::getDeviceGuardImpl(kType)->getDevice();
    const StreamKey stream = current_stream(current);
    Block* const block = device_blocks().take(size, stream);
    if (block == nullptr) {
      return {nullptr, nullptr, &free_device_block, current};
    }
    // In the stream's order: earlier work may still use what was here before.
    if (poison_memory) {
      executor().enqueue(stream, "poison", [address = block->address, capacity = block->capacity] {
        std::memset(address, 0xFF, capacity);
      });
    }
    return {block->address, block, &free_device_block, current};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, std::size_t size) const override {
    const c10::Device current = c10::impl::getDeviceGuardImpl(kType)->getDevice();
    executor().enqueue(current_stream(current), "copy", [=] { std::memcpy(target, source, size); });
  }
};

struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(std::size_t size) override {
    Block* const block = pinned_blocks().take(size, StreamKey{-1, 0});
    return {block == nullptr ? nullptr : block->address, block, &free_pinned_block, at::kCPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* target, const void* source, std::size_t size) const override {
    std::memcpy(target, source, size);
  }
  bool record_event(void* address, void*, c10::Stream stream) override {
    Block* const block = pinned_blocks().find(address);
    if (block != nullptr) {
      pinned_blocks().record(block, key(stream));
    }
    return block != nullptr;
  }
  void empty_cache() override { pinned_blocks().clear(); }
  at::HostStats get_stats() override {
    const MemoryStats stats = pinned_memory();
    at::HostStats result;
    result.active_bytes.current = static_cast<std::int64_t>(stats.in_use);
    result.active_bytes.peak = static_cast<std::int64_t>(stats.peak);
    result.num_host_alloc = static_cast<std::int64_t>(stats.allocations - stats.reuses);
    return result;
  }
  void reset_accumulated_stats() override { pinned_blocks().reset_stats(); }
  void reset_peak_stats() override { pinned_blocks().reset_stats(); }
};

PinnedAllocator& pinned_allocator() {
  static PinnedAllocator allocator;
  return allocator;
}

}  // namespace

// Never destroyed: tensors in static variables outlive everything else.
BlockCache& device_blocks() {
  static auto* const blocks = new BlockCache(executor());
  return *blocks;
}

BlockCache& pinned_blocks() {
  static auto* const blocks = new BlockCache(executor());
  return *blocks;
}

c10::Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

MemoryStats memory(c10::DeviceIndex index) {
  return device_blocks().stats(index);
}

MemoryStats pinned_memory() {
  return pinned_blocks().stats(-1);
}

void set_poison(bool poison) {
  poison_memory = poison;
}

void resize_storage(c10::StorageImpl& storage, std::size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr fresh = device_allocator().allocate(bytes);
  const std::size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) {
    executor().enqueue(current_stream(storage.device()),
                       "resize",
                       [target = fresh.get(), source = storage.data(), kept] {
                         std::memcpy(target, source, kept);
                       });
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(bytes);
}

void register_allocators() {
  c10::SetAllocator(kType, &device_allocator());
  at::setHostAllocator(kType, &pinned_allocator());
}

}  // namespace ttrace::testing::fake
