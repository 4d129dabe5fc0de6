// One rank's record of a tensor.
//
// Thread-safety: a value.
#pragma once

#include "trace/file/record.h"

#include <ttrace/export.h>

#include <cstddef>
#include <span>

namespace ttrace {

// One rank's piece of a tensor.
struct TTRACE_API Shard {
  int rank = 0;
  const Record* record = nullptr;
  std::span<const std::byte> bytes;
};

}  // namespace ttrace
