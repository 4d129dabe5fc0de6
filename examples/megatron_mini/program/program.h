// The whole of megatron_mini but for main(), so that a test can register a device before.
#pragma once

namespace megatron_mini {

// Returns the exit code: 0, 1 for a failure, 2 for bad input.
[[nodiscard]] int run_program(int argc, char** argv);

}  // namespace megatron_mini
