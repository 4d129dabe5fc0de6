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

#include "bugs.h"

#include <string_view>

namespace megatron_mini {

// Throws ttrace::InternalError for a text that is no condition and for a name that is no fact.
[[nodiscard]] bool holds(std::string_view condition, const RunFacts& facts);

}  // namespace megatron_mini
