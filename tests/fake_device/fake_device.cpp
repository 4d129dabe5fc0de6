#include "fake_device/fake_device.h"

#include "fake_device/runtime.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

namespace ttrace::testing::fake {
namespace {

// As many as CUDA has. Streams of a pool are handed out in turn, so two users may share one.
constexpr std::int64_t kPoolStreams = 32;

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<std::int64_t, kDevices> current_streams = {};

std::array<std::atomic<std::int64_t>, kDevices> pool_streams_used = {};
std::atomic<std::int64_t> next_own_stream = kPoolStreams + 1;

// What a c10::Event points to. Null until it is recorded.
struct Event {
  SignalRef signal;
};

SignalRef signal_of(void* event) {
  return event == nullptr ? nullptr : static_cast<Event*>(event)->signal;
}

c10::DeviceIndex index_of(const c10::Device& device) {
  return device.has_index() ? device.index() : current_device;
}

c10::Stream stream_of(c10::DeviceIndex index, std::int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  [[nodiscard]] c10::DeviceType type() const override { return kType; }
  [[nodiscard]] c10::Device getDevice() const override { return device(current_device); }
  [[nodiscard]] c10::Device exchangeDevice(c10::Device next) const override {
    return device(std::exchange(current_device, index_of(next)));
  }
  void setDevice(c10::Device next) const override {
    TORCH_CHECK(index_of(next) < kDevices, "there is no device ", next);
    current_device = index_of(next);
  }
  void uncheckedSetDevice(c10::Device next) const noexcept override {
    current_device = index_of(next);
  }
  [[nodiscard]] c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  [[nodiscard]] c10::Stream getStream(c10::Device of) const override {
    const c10::DeviceIndex index = index_of(of);
    return stream_of(index, current_streams.at(static_cast<std::size_t>(index)));
  }
  [[nodiscard]] c10::Stream getDefaultStream(c10::Device of) const override {
    return stream_of(index_of(of), 0);
  }
  [[nodiscard]] c10::Stream getStreamFromGlobalPool(c10::Device of, bool) const override {
    const c10::DeviceIndex index = index_of(of);
    const std::int64_t turn = pool_streams_used.at(static_cast<std::size_t>(index))++;
    return stream_of(index, 1 + turn % kPoolStreams);
  }
  [[nodiscard]] c10::Stream getNewStream(c10::Device of, int) const override {
    return stream_of(index_of(of), next_own_stream++);
  }
  [[nodiscard]] c10::Stream exchangeStream(c10::Stream stream) const override {
    auto& current = current_streams.at(static_cast<std::size_t>(stream.device_index()));
    return stream_of(stream.device_index(), std::exchange(current, stream.id()));
  }
  [[nodiscard]] bool queryStream(const c10::Stream& stream) const override {
    return executor().query_stream(key(stream));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    executor().wait_stream(key(stream));
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    executor().wait_device(index < 0 ? current_device : index);
  }
  // Overrides, where LibTorch has it (since 2.13).
  [[nodiscard]] bool isStreamCapturing(const c10::Stream& stream) const {
    return executor().capturing(key(stream));
  }

  void record(void** event,
              const c10::Stream& stream,
              const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event();
    }
    static_cast<Event*>(*event)->signal = executor().record(key(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    executor().block(key(stream), signal_of(event));
  }
  [[nodiscard]] bool queryEvent(void* event) const override {
    return executor().query(signal_of(event));
  }
  void synchronizeEvent(void* event) const override { executor().wait_event(signal_of(event)); }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (Block* const block = device_blocks().find(data.get())) {
      device_blocks().record(block, key(stream));
    }
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  [[nodiscard]] bool isBuilt() const override { return true; }
  [[nodiscard]] bool isAvailable() const override { return true; }
  // Autograd asks it which devices have streams that a backward pass must wait for.
  [[nodiscard]] bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  [[nodiscard]] c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex index) const override { current_device = index; }
  [[nodiscard]] c10::DeviceIndex getCurrentDevice() const override { return current_device; }
  [[nodiscard]] c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return std::exchange(current_device, index);
  }
  [[nodiscard]] c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? current_device : exchangeDevice(index);
  }
  // Random numbers are drawn on the host, so that they equal the CPU's.
  [[nodiscard]] const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  [[nodiscard]] at::Device getDeviceFromPtr(void* data) const override {
    const Block* const block = device_blocks().find(data);
    TORCH_CHECK(block != nullptr, "the address is not of a fake device");
    return device(static_cast<c10::DeviceIndex>(block->stream.device));
  }
  [[nodiscard]] bool isPinnedPtr(const void* data) const override {
    return pinned_blocks().find(data) != nullptr;
  }
  [[nodiscard]] c10::Allocator* getPinnedMemoryAllocator() const override {
    return at::getHostAllocator(kType);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    static const Guard guard;
    static Hooks hooks;
    c10::register_privateuse1_backend("fake");
    c10::impl::registerDeviceGuard(kType, &guard);
    at::RegisterPrivateUse1HooksInterface(&hooks);
    register_allocators();
    register_kernels();
    register_operators();
  });
}

void reset(std::uint64_t seed, Policy policy) {
  executor().reset(seed, policy);
  for (BlockCache* blocks : {&device_blocks(), &pinned_blocks()}) {
    blocks->clear();
    blocks->reset_stats();
  }
  set_poison(true);
  current_device = 0;
  current_streams = {};
}

void move_to(const at::Tensor& tensor, c10::Device where) {
  const at::Tensor moved = tensor.detach().to(where);
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(moved.sizes(), moved.strides(), moved.storage_offset());
  impl->set_storage_keep_dtype(moved.storage());
  impl->_change_backend_component_keys(where);
}

Executor& executor() {
  static auto* const executor = new Executor();
  return *executor;
}

StreamKey key(const c10::Stream& stream) {
  return {stream.device_index(), stream.id()};
}

StreamKey current_stream(const c10::Device& device) {
  return key(c10::impl::getDeviceGuardImpl(kType)->getStream(device));
}

c10::Stream default_stream(c10::DeviceIndex index) {
  return stream_of(index, 0);
}

c10::Stream new_stream(c10::DeviceIndex index) {
  return stream_of(index, next_own_stream++);
}

void launch(const c10::Stream& stream, std::string name, Work work) {
  executor().enqueue(key(stream), std::move(name), std::move(work));
}

SignalRef post_gate(const c10::Stream& stream, std::string name, Opener opener) {
  SignalRef gate = Executor::make_gate(std::move(name), opener);
  executor().block(key(stream), gate);
  return gate;
}

void open(const SignalRef& gate) {
  executor().open(gate);
}

void begin_capture(const c10::Stream& stream, CaptureMode mode) {
  executor().begin_capture(key(stream), mode);
}

Graph end_capture(const c10::Stream& stream) {
  return executor().end_capture(key(stream));
}

void replay(const Graph& graph, const c10::Stream& stream) {
  executor().replay(graph, key(stream));
}

}  // namespace ttrace::testing::fake

// Functions with the names, the codes and the effects of those of CUDA's driver and of torch's
// library for CUDA, so that what a program does for CUDA without its headers works here.
extern "C" {
__attribute__((visibility("default"))) int cuThreadExchangeStreamCaptureMode(int* mode) {
  using ttrace::testing::fake::CaptureMode;
  *mode = static_cast<int>(
      ttrace::testing::fake::Executor::exchange_thread_mode(static_cast<CaptureMode>(*mode)));
  return 0;
}

// A stream's handle is its number; that of a default stream is null, as CUDA's is.
__attribute__((visibility("default"))) std::int32_t aoti_torch_get_current_cuda_stream(
    std::int32_t device, void** stream) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  if (index < 0 || index >= ttrace::testing::fake::kDevices) {
    return 1;
  }
  *stream = reinterpret_cast<void*>(
      ttrace::testing::fake::current_stream({ttrace::testing::fake::kType, index}).index);
  return 0;
}

__attribute__((visibility("default"))) int cuStreamIsCapturing(void* stream, int* status) {
  using ttrace::testing::fake::current_device;
  const auto index = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(stream));
  *status = ttrace::testing::fake::executor().capturing({current_device, index}) ? 1 : 0;
  return 0;
}
}
