// What excuses a finding, once every tensor has its checks: an error that came with the inputs,
// another choice of experts before it, a permission.
//
// Each rule is a function of the checks, the records and what the user or a program declares. It
// reads tensors as they were judged, without what another rule excuses, so that rules may be asked
// in any order. TensorVerdict::status() says which excuse counts where several apply.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/id_pattern.h"
#include "analysis/bounds/allowance.h"
#include "analysis/findings/verdict.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

// By position in the list of tensors; nothing where a rule does not excuse the tensor. Empty where
// it excuses none.
using Excuses = std::vector<std::optional<Excused>>;

// Whether the tensor's own operators are right, so that only its error against the noise is too
// large, or what they were given led to other NaN and Inf.
[[nodiscard]] bool is_of_size_alone(const TensorVerdict& tensor);

// All rules require tensors in the reference's order.

// Errors that a flip of experts before them may explain: those of the flip's micro-batch, and from
// the optimizer on all, that are beyond a bound which knows of no flip.
[[nodiscard]] Excuses behind_flips(std::span<const TensorVerdict> tensors);

// Errors of T2 whose own operators are right: something that comes before is wrong, or roundings
// have added up to more than the noise passes showed. Before anything is wrong that holds up to 2
// times the bound, and as long as all tensors before were checked so. It holds for numbers of F16
// that overflow on one side alone, too, and for all NaN and Inf behind them. What is behind a flip,
// or behind random numbers that nobody follows (`choices`, empty if nothing is), is neither wrong
// nor inherited.
[[nodiscard]] Excuses inherited(std::span<const TensorVerdict> tensors,
                                const Excuses& choices = {},
                                const Allowances& allowances = {});

// Tensors that one of the two excuses; the first one where both do. Either may be empty.
[[nodiscard]] Excuses either(Excuses first, const Excuses& second);

// Tensors that `is_excused` holds for.
[[nodiscard]] Excuses excused(std::span<const TensorVerdict> tensors,
                              Excuse excuse,
                              const std::function<bool(const TensorVerdict&)>& is_excused);

// Tensors of the status `missing` whose id one of the patterns is found in that the program of that
// side declares it cannot record.
[[nodiscard]] Excuses untraced(std::span<const TensorVerdict> tensors,
                               Status missing,
                               std::span<const std::string> declared);

// Findings whose id one of the patterns is found in: `missing` of those that one side lacks,
// `failed` of all others.
struct Permission {
  std::vector<IdPattern> missing;
  std::vector<IdPattern> failed;

  [[nodiscard]] bool empty() const { return missing.empty() && failed.empty(); }
  // Tries all patterns, so that each records whether it applies.
  [[nodiscard]] bool covers(const TensorVerdict& tensor);
};
[[nodiscard]] Excuses permitted(std::span<const TensorVerdict> tensors, Permission permission);
// Warns of patterns that apply to nothing. `tensors` have all their excuses: what a program or a
// rename map declares needs no permission.
void warn_of_unused(std::span<const TensorVerdict> tensors,
                    Permission permission,
                    std::vector<std::string>& warnings);

}  // namespace ttrace
