// A tensor that stays on its device, for a sink that can do without its bytes.
//
// Thread-safety: the values do not change; call from any thread. Every call waits for what made the
// values and for its own work, never for anything else that runs on the device.
#pragma once

#include "trace/kernels/digest.h"
#include "trace/sums/slices.h"
#include "trace/sums/statistics.h"

#include <cstddef>
#include <span>
#include <vector>

namespace ttrace {

// How a tensor differs from another one.
struct Deviation {
  Statistics statistics;
  Slices slices;  // of difference_squared; empty where the tensors are equal or hold no floats
};

class DeviceValues {
 public:
  DeviceValues() = default;
  virtual ~DeviceValues() = default;
  DeviceValues(const DeviceValues&) = delete;  // owns device memory
  DeviceValues& operator=(const DeviceValues&) = delete;

  [[nodiscard]] virtual std::size_t size() const = 0;  // bytes
  // That of the row-major bytes.
  [[nodiscard]] virtual Digest digest() const = 0;
  // `reference`: row-major bytes on the host, of the same type and shape.
  [[nodiscard]] virtual Deviation deviation_from(std::span<const std::byte> reference) const = 0;
  // Copies the values to the host, row-major.
  [[nodiscard]] virtual std::vector<std::byte> bytes() const = 0;
};

}  // namespace ttrace
