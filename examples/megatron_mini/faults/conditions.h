// The condition under which a bug acts, as bugs.yaml writes it: "tp >= 2 and (sp or cp >= 2)".
//
//   condition  = conjunction { "or" conjunction }
//   conjunction = negation { "and" negation }
//   negation   = [ "not" ] ( "(" condition ")" | product [ (">=" | "==" | "<") product ] )
//   product    = value { "*" value }
//   value      = number | name of a fact
//
// A product without a comparison holds where it is not 0.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace megatron_mini::faults {

// The names of axes and options that a condition may use, and what a run has of them; 0 is absent.
using RunFacts = std::map<std::string, std::int64_t, std::less<>>;

// Throws InternalError for a text that is not a condition and for a name that is not a fact.
[[nodiscard]] bool holds(std::string_view condition, const RunFacts& facts);

}  // namespace megatron_mini::faults
