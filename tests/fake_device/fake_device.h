// An accelerator for machines without one: torch's spare device type under the name "fake". Its
// memory is host memory, and its work is asynchronous: an executor runs it in an order drawn from a
// seed. Operators run torch's CPU kernels, so that results equal the CPU's in every bit (one
// thread; scaled_dot_product_attention takes its math path, so compare it with the CPU's math
// path).
//
// Errors: a wait that can never end throws Deadlock, and what a capture forbids throws
// CaptureError. An error of a kernel (an index out of range) is thrown by the next wait, as on a
// real device.
#pragma once

#include "fake_device/executor.h"
#include "fake_device/memory.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ttrace::testing::fake {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr c10::DeviceIndex kDevices = 2;

// Registers device, allocators and operators. Call it before the first backward pass of the
// process, because autograd starts its device threads then. Calling it again does nothing.
void install();

// Starts a test: pending work is dropped, counters and statistics of memory are zero, and all that
// follows is drawn from the seed. The calling thread's current device and streams are the defaults.
void reset(std::uint64_t seed = 0, Policy policy = Policy::kSeeded);

[[nodiscard]] inline c10::Device device(c10::DeviceIndex index = 0) {
  return {kType, index};
}

// Moves a tensor in place, as torch::nn::Module::to(device) does for the devices that torch knows
// of. `where` is fake or the CPU. Call it before the tensor is used, because autograd remembers the
// device.
void move_to(const at::Tensor& tensor, c10::Device where);

// For orders, waits, gates and captures that torch's interfaces do not offer.
[[nodiscard]] Executor& executor();
[[nodiscard]] inline Counters counters() {
  return executor().counters();
}

[[nodiscard]] MemoryStats memory(c10::DeviceIndex index = 0);
[[nodiscard]] MemoryStats pinned_memory();

// Whether allocations fill their memory with bytes 0xFF (NaN, -1), as work on the stream they are
// for. They do after reset().
void set_poison(bool poison);

[[nodiscard]] StreamKey key(const c10::Stream& stream);
[[nodiscard]] c10::Stream default_stream(c10::DeviceIndex index = 0);
[[nodiscard]] c10::Stream new_stream(c10::DeviceIndex index = 0);

// A kernel of the test's own. `work` must not own device tensors that the program does not keep.
void launch(const c10::Stream& stream, std::string name, Work work);

// A receive that was posted ahead: the stream goes on when the gate is opened.
[[nodiscard]] SignalRef post_gate(const c10::Stream& stream,
                                  std::string name,
                                  Opener opener = Opener::kThisThread);
void open(const SignalRef& gate);

void begin_capture(const c10::Stream& stream, CaptureMode mode = CaptureMode::kGlobal);
[[nodiscard]] Graph end_capture(const c10::Stream& stream);
void replay(const Graph& graph, const c10::Stream& stream);

}  // namespace ttrace::testing::fake
