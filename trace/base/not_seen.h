// What a run did that nobody could look at, so that no verdict covers it.
//
// Thread-safety: constants and free functions without shared state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ttrace {

enum class NotSeenKind : std::uint8_t {
  kUpdates,    // no optimizer was attached: reduced gradients and updates
  kState,      // buffers, or the optimizer's state, that were not recorded
  kStart,      // start values that were replaced
  kRandom,     // random operators that could not be followed
  kParallel,   // both programs run on one device
  kLater,      // what came after the traced steps
  kValues,     // tensors without finite values, or without a bound that says something
  kSamples,    // rows that could not be aligned
  kGradients,  // gradients that nobody could record
};

// By number: what a program, a report and --require call them.
inline constexpr std::array<std::string_view, 9> kNotSeenKinds = {
    "updates", "state", "start", "random", "parallel", "later", "values", "samples", "gradients"};
static_assert(kNotSeenKinds.size() == static_cast<std::size_t>(NotSeenKind::kGradients) + 1);

[[nodiscard]] constexpr std::string_view name_of(NotSeenKind kind) {
  return kNotSeenKinds.at(static_cast<std::size_t>(kind));
}
// Throws UsageError that lists the kinds.
[[nodiscard]] NotSeenKind parse_not_seen_kind(std::string_view name);

struct NotSeen {
  NotSeenKind kind = NotSeenKind::kUpdates;
  std::string sentence;

  auto operator<=>(const NotSeen&) const = default;
};

}  // namespace ttrace
