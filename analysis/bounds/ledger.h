// The ledger: what the error model grants to right programs, beside the noise of this run.
//
// A row is a component of the error model or an excuse, with what it rests on and a clean run that
// alarms without it. The constants of a component belong to its row; docs/verdict_reference.md has
// its formula. A clean alarm asks for the component that was missing, with its derivation; it is no
// reason for an exception.
//
// Every row can be switched off (`ttrace diff --without NAME`). Components are left out of a scale
// in one place (Yardstick); the code of anything else asks Allowances whether it is in force.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/bounds/allowance.h"

#include <optional>
#include <span>
#include <string_view>

namespace ttrace {

// A row stands at its allowance's number.
[[nodiscard]] std::span<const LedgerRow> ledger();
[[nodiscard]] const LedgerRow& row_of(Allowance allowance);
// Nothing for a name that no row has.
[[nodiscard]] std::optional<Allowance> find_allowance(std::string_view name);

}  // namespace ttrace
