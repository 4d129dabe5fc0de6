// The kernels of trace/kernels as work of the pretended accelerator.
#pragma once

#include "fake_device/fake_device.h"
#include "hooks/device/kernel_registry.h"
#include "support/host_kernels.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace ttrace::testing {

class FakeKernels : public DeviceKernels {
 public:
  void perturb(ElementType type,
               NoiseClass noise,
               std::uint64_t seed,
               std::int64_t count,
               void* values) const override {
    fake::launch(
        stream(), "perturb", [=] { perturb_in_grid(kWorkers, type, noise, seed, count, values); });
  }
  [[nodiscard]] Digest digest(const void* data, std::int64_t bytes) const override {
    Digest result{};
    run("digest", [&] { result = digest_in_grid(kWorkers, data, bytes); });
    return result;
  }
  [[nodiscard]] Statistics compare(const ElementPairs& pairs) const override {
    Statistics result;
    run("compare", [&] { result = compare_in_grid(kWorkers, pairs); });
    return result;
  }
  [[nodiscard]] Slices sum_slices(std::span<const std::int64_t> shape,
                                  const ElementPairs& pairs) const override {
    Slices result;
    run("sum_slices", [&] { result = sum_slices_in_grid(kWorkers, shape, pairs); });
    return result;
  }

 private:
  static constexpr int kWorkers = 3;

  static c10::Stream stream() {
    const c10::impl::VirtualGuardImpl guard(fake::kType);
    return guard.getStream(guard.getDevice());
  }
  static void run(const std::string& name, const fake::Work& work) {
    fake::launch(stream(), name, work);
    stream().synchronize();
  }
};

// The pretended accelerator has kernels while this lives.
class WithFakeKernels {
 public:
  WithFakeKernels() { register_kernels(fake::kType, std::make_unique<FakeKernels>()); }
  ~WithFakeKernels() { register_kernels(fake::kType, nullptr); }
  WithFakeKernels(const WithFakeKernels&) = delete;  // undoes once
  WithFakeKernels& operator=(const WithFakeKernels&) = delete;
};

}  // namespace ttrace::testing
