#include "analysis/bounds/ledger.h"

#include "analysis/bounds/ledger_noise_rows.h"
#include "analysis/bounds/ledger_operator_rows.h"

#include <algorithm>
#include <array>

namespace ttrace {
namespace {

constexpr auto kLedger = [] {
  std::array<LedgerRow, kAllowances> rows{};
  const auto rest = std::ranges::copy(kNoiseRows, rows.begin()).out;
  std::ranges::copy(kOperatorRows, rest);
  return rows;
}();

static_assert([] {
  for (std::size_t number = 0; number < kLedger.size(); ++number) {
    if (static_cast<std::size_t>(kLedger[number].allowance) != number) {
      return false;
    }
  }
  return kNoiseRows.size() + kOperatorRows.size() == kAllowances;
}());

}  // namespace

std::span<const LedgerRow> ledger() {
  return kLedger;
}

const LedgerRow& row_of(Allowance allowance) {
  return kLedger.at(static_cast<std::size_t>(allowance));
}

std::optional<Allowance> find_allowance(std::string_view name) {
  const auto found = std::ranges::find(kLedger, name, &LedgerRow::name);
  return found == kLedger.end() ? std::nullopt : std::optional(found->allowance);
}

}  // namespace ttrace
