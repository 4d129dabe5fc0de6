// `ttrace rename --guess`: proposes a rename map for two stored traces.
//
// Thread-safety: a free function without shared state.
#pragma once

#include <boost/program_options/variables_map.hpp>

namespace ttrace::cli {

// Writes the map to the file of --output, or prints it. Returns the exit code: 0 if every tensor
// has its counterpart, 1 if questions are open. Throws UsageError and FormatError.
int run_guess(const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
