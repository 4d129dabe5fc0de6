// A record that one rank holds, which may be settled where it is.
//
// Thread-safety: a plain value; what it points to belongs to the trace.
#pragma once

#include "trace/file/trace_reader.h"

#include <cstddef>

namespace ttrace {

struct HeldRecord {
  RankFile* file = nullptr;
  std::size_t index = 0;

  [[nodiscard]] const Record& record() const { return file->records()[index]; }
  [[nodiscard]] const Placement& placement() const { return record().placement; }
};

}  // namespace ttrace
