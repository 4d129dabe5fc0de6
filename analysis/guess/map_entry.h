// An entry of a proposed rename map.
//
// Thread-safety: values.
#pragma once

#include "analysis/guess/arrangement.h"
#include "analysis/guess/layer_patterns.h"
#include "analysis/guess/pairings.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ttrace {

// An entry of `dims`.
struct EntryDims {
  std::string kinds;
  Arrangement how;

  auto operator<=>(const EntryDims&) const = default;
};

// What an entry says, apart from its paths.
struct EntryWords {
  std::string kinds;        // empty: all
  std::optional<int> slot;  // of the modules alone
  std::int64_t groups = 1;
  std::vector<std::int64_t> ratio;  // empty: no parts
  std::set<EntryDims> dims;
  bool open = false;  // a question instead

  auto operator<=>(const EntryWords&) const = default;
};

struct MapEntry {
  PathGroup paths;  // an empty side: ~
  EntryWords words;
  std::size_t order = 0;    // of its first tensor, to sort by
  std::size_t tensors = 0;  // units that it decides
  Certainty certainty = Certainty::kCertain;
  std::set<std::string> evidence;
  std::optional<double> error;       // the largest
  std::vector<std::string> options;  // of a question
};

}  // namespace ttrace
