// The options that plant a bug or a mutant.
#pragma once

#include "planted.h"

#include <boost/program_options/options_description.hpp>
#include <boost/program_options/variables_map.hpp>

#include <string>

namespace megatron_mini::faults {

void add_options(boost::program_options::options_description& description);

// Throws UsageError for what is unknown or does not fit together.
[[nodiscard]] Choice read_choice(const boost::program_options::variables_map& values);

// What --list-bugs prints: one line of JSON per bug.
[[nodiscard]] std::string bug_list();

}  // namespace megatron_mini::faults
