// What this machine does to numbers at this moment: torch's settings, the variables that the
// libraries read, and a product that shows what the CPU does.
//
// Thread-safety: call on the training thread, whose settings count.
#pragma once

#include <ttrace/run_description.h>

#include <c10/core/DeviceType.h>

namespace ttrace {

// For a manifest's `numerics`, see trace/base/numerics.h. `device` is where the parameters lie.
// Runs nothing on an accelerator and leaves every setting as it is.
[[nodiscard]] Section numerics_of(c10::DeviceType device);

// For a manifest's `versions`: the libraries that compute on the device, where torch says.
[[nodiscard]] Section library_versions(c10::DeviceType device);

}  // namespace ttrace
