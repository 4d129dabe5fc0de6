// Questions to CUDA's driver and to torch's library for CUDA. We look their functions up by name,
// because we neither link nor load them, and before 2.13 torch's own interfaces for all devices
// answer fewer of these questions.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <optional>

namespace ttrace {

// Null where the process has not loaded the driver, or the driver has no such function.
[[nodiscard]] void* find_in_cuda_driver(const char* name);

// The cudaStream_t that is current on the calling thread for the device of this number. Nothing
// where no torch with CUDA is in the process; requires one that stays from the first call on.
[[nodiscard]] std::optional<void*> current_cuda_stream(int device);

// Whether that stream records a graph. False if the driver cannot answer.
[[nodiscard]] bool current_cuda_stream_records(int device);

}  // namespace ttrace
