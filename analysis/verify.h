// Checks that a stored trace is what its writer wrote.
//
// Thread-safety: free function without shared state.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace ttrace {

struct Verification {
  std::vector<std::string> problems;  // one sentence each; none: the trace is sound
  std::size_t files = 0;              // that could be read
  std::size_t undigested = 0;         // of these, that an earlier version wrote: nothing but the
                                      // tensors' bytes has a digest in them
  std::size_t tensors = 0;            // logical ones
  std::size_t bytes = 0;              // of tensors, digests of which were compared
};

// Called after every rank file and every tensor; one call at a time.
using VerifyProgress =
    std::function<void(const std::string& what, std::size_t done, std::size_t total)>;

// Reads all of a trace: manifest, every rank's file of every step, start parameters, noise tables,
// placements. Throws FormatError if there is nothing to verify: no readable manifest, or no
// readable file.
[[nodiscard]] Verification verify(const std::string& directory,
                                  const VerifyProgress& progress = {});

}  // namespace ttrace
