// What the parts of the fake device share: its allocators, the current stream, and the registration
// of operators. Tests include fake_device.h instead.
#pragma once

#include "fake_device/fake_device.h"

#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>

#include <cstddef>

namespace ttrace::testing::fake {

// Allocates on the current device, for its current stream.
[[nodiscard]] c10::Allocator& device_allocator();

[[nodiscard]] BlockCache& device_blocks();
[[nodiscard]] BlockCache& pinned_blocks();

// The calling thread's current stream of a device.
[[nodiscard]] StreamKey current_stream(const c10::Device& device);

// Gives a storage of the device another size in bytes. What fits is copied on the current stream.
void resize_storage(c10::StorageImpl& storage, std::size_t bytes);

// Called once and in this order, by install(). Operators are those that kernels leave out.
void register_allocators();
void register_kernels();
void register_operators();

}  // namespace ttrace::testing::fake
