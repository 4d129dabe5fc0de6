// --timeout and --grace, the options of commands that run the user's programs.
#pragma once

#include "analysis/cli/run/passes.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

namespace ttrace::cli {

void add_pass_limit_options(boost::program_options::options_description& named);

// --jobs and --fresh, of commands that run a program several times.
void add_repetition_options(boost::program_options::options_description& named);

// Throws UsageError if one of the two is no time.
[[nodiscard]] PassLimits pass_limits_of(const boost::program_options::variables_map& values);

}  // namespace ttrace::cli
