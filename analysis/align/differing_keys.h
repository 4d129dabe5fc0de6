// What differs in two sections of manifests.
//
// Thread-safety: free functions without shared state.
#pragma once

#include <ttrace/run_description.h>

#include <set>
#include <string>

namespace ttrace {

// Keys that one of the two lacks, or that have other values in it.
[[nodiscard]] std::set<std::string> differing_keys(const Section& left, const Section& right);

// The value of a key, or `absent` where the section does not have it.
[[nodiscard]] std::string value_or(const Section& section,
                                   const std::string& key,
                                   const std::string& absent);

}  // namespace ttrace
