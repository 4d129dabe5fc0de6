// What TTrace computes on a device, with the functions of trace/kernels.
//
// Thread-safety: call from any thread. Kernels run on the stream that is current on the calling
// thread for its current device, so set a device or stream guard first.
#pragma once

#include "trace/kernels/compare_pairs.h"
#include "trace/kernels/digest.h"
#include "trace/kernels/noise.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <cstdint>
#include <span>

namespace ttrace {

// Pointers are into the device's memory, at multiples of the element's size. Every function throws
// UsageError with the device's own words where a call fails.
class DeviceKernels {
 public:
  DeviceKernels() = default;
  virtual ~DeviceKernels() = default;
  DeviceKernels(const DeviceKernels&) = delete;  // used through its base
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // perturb() in place. Returns when it is enqueued.
  virtual void perturb(ElementType type,
                       NoiseClass noise,
                       std::uint64_t seed,
                       std::int64_t count,
                       void* values) const = 0;
  // digest_of(). This and what follows return when the stream is done.
  [[nodiscard]] virtual Digest digest(const void* data, std::int64_t bytes) const = 0;
  // compare().
  [[nodiscard]] virtual Statistics compare(const ElementPairs& pairs) const = 0;
  // sum_slices() with kDifferences; see join_chunks() for the fields that are set.
  [[nodiscard]] virtual Slices sum_slices(std::span<const std::int64_t> shape,
                                          const ElementPairs& pairs) const = 0;
};

}  // namespace ttrace
