// When the modules of one rank ran, as far as the records of a step tell.
//
// The forward of a module begins with its first input, or with the first record of what lies inside
// it, and ends with its last output. Its backward begins with the gradient of its output. It ends
// with the gradients of its inputs and parameters and with the backward of what lies inside it; if
// nothing of that was recorded, with the gradient of the tensor that it took from another module.
// An end that no record shows is the neighbouring record of the rank, and the span says so. Records
// of collectives do not count there, because a module calls them itself.
//
// Times are those of the host: when the program called the module, and not when an accelerator
// computed what the call had asked for.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "trace/file/rank_file.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

enum class ModuleRun : std::uint8_t { kForward, kAgain, kBackward };  // kAgain: recomputed

struct ModuleSpan {
  ModuleRun run = ModuleRun::kForward;
  std::int64_t microbatch = 0;
  std::string module;
  int call = 0;
  std::uint64_t begin = 0;  // nanoseconds, as the times of `clock`
  std::uint64_t end = 0;    // not before `begin`
  bool shows_begin = true;  // a record shows it
  bool shows_end = true;
  std::vector<std::size_t> records = {};  // positions of its own in file.records()
};

// What time a record or an edge has; see times_of().
struct EventTimes {
  std::vector<std::uint64_t> records;  // as file.records()
  std::vector<std::uint64_t> edges;    // as file.edges()
};

// Nanoseconds since the step began there. `measured` false: the place in the order, a microsecond
// per record.
[[nodiscard]] EventTimes times_of(const RankFile& file, bool measured);

// All spans of one step and rank; outer modules before those inside them.
[[nodiscard]] std::vector<ModuleSpan> module_spans(const RankFile& file, const EventTimes& times);

}  // namespace ttrace
