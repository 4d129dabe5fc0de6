// Modules that one side alone has: a wrapper around what the other side calls directly, the model's
// own call where the other program calls its parts, an activation that is a function there.
//
// Nothing on the other side says what such a module should take and return, and what comes before
// and behind it is compared. So its tensors are no findings, and one note names the modules and the
// remedy. A module with parameters is another matter: they are the model's, so that a module which
// does not run leaves its findings, and so does a module of which the other side records anything.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/checks/excuses.h"

#include <span>
#include <string>
#include <vector>

namespace ttrace {

// Excuses missing inputs and outputs of such modules, and their gradients; the sentence says which
// side has the module. Nothing is excused where no parameters were recorded, so that no module is
// known to have none, or where the two have no module in common. What a program declares it cannot
// record (Manifest::untraced) is left to that rule.
[[nodiscard]] Excuses of_own_modules(std::span<const Match> matches,
                                     std::span<const TensorVerdict> tensors,
                                     std::span<const std::string> untraced_by_reference,
                                     std::span<const std::string> untraced_by_candidate);

[[nodiscard]] bool is_of_own_module(const TensorVerdict& tensor);

// One sentence for every side that has such modules. `tensors` have their excuses.
[[nodiscard]] std::vector<std::string> notes_on_own_modules(std::span<const TensorVerdict> tensors);

}  // namespace ttrace
