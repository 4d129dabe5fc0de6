// One rank's record of a tensor.
//
// Thread-safety: a value.
#pragma once

#include "trace/file/rank_file.h"
#include "trace/file/record.h"

#include <cstddef>
#include <span>

namespace ttrace {

// One rank's piece of a tensor.
struct Shard {
  int rank = 0;
  const Record* record = nullptr;
  std::span<const std::byte> bytes;
  const RankFile* file = nullptr;  // that holds the bytes; merge() then checks their digest
};

// Whether its elements are known, and not a sketch of them alone.
[[nodiscard]] inline bool has_elements(const Shard& shard) {
  return shard.record->keep == Keep::kBytes;
}

// Keeps references to the file and its record.
[[nodiscard]] inline Shard shard_of(const RankFile& file, const Record& record) {
  return {file.layout().rank, &record, file.bytes(record), &file};
}

}  // namespace ttrace
