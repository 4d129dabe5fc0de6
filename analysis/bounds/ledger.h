// The ledger of limits: everything that widens a bound, exempts a tensor from a question, or is a
// constant of a bound has one row here, with what it rests on and a clean run that alarms without
// it. docs/figures/ledger.md has what every row costs and buys, measured.
//
// Every row can be switched off (`ttrace diff --without NAME`): the code of the term asks
// Allowances whether it is in force.
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
