// The device that the model is on.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace ttrace::reference {

// Loads what torch needs for devices of this type ("cpu", "cuda", or another one that this process
// has registered), and makes the first of them the current one. Throws UsageError where torch has
// none.
[[nodiscard]] c10::Device open_device(const std::string& type);

}  // namespace ttrace::reference
