// The device that a rank computes on.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace megatron_mini {

// Loads what torch needs for devices of this type ("cpu", "cuda", or another one that this process
// has registered), and makes one of them the calling thread's current one: that with the number of
// the rank on its machine, modulo how many there are. Call it before anything else touches such a
// device, because whatever is done on another one stays there. Throws UsageError where torch has
// none.
[[nodiscard]] c10::Device open_device(const std::string& type, int local_rank);

}  // namespace megatron_mini
