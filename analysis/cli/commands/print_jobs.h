// `ttrace check --print-jobs`: the passes of a check as a shell script.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/cli/commands/check_options.h"

#include <boost/program_options/variables_map.hpp>

#include <iosfwd>

namespace ttrace::cli {

// `values` are the arguments of check; those that judge are handed on to `ttrace diff`. Throws
// UsageError if -o is missing.
void print_jobs(std::ostream& out,
                const CheckOptions& options,
                const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
