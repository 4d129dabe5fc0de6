// All ways in which the dims grammar can cut one dimension so that the ranks hold what they hold.
//
// Thread-safety: CutTable may be used from any thread; the rest are values.
#pragma once

#include "analysis/infer/holders.h"

#include <ttrace/dims.h>
#include <ttrace/placement.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

namespace ttrace {

struct Cut {
  std::vector<DimFactor> factors;   // without names
  AxisSet axes = 0;                 // that cut
  std::vector<DimPlacement> parts;  // by holder: the result of place() for the factors
  int complexity = 0;               // of two that fit equally well the smaller one is believed
};

// Cuts of a dimension with `logical` indices that give the holders the sizes `locals`, the simplest
// first. No two of them place alike. Empty if the sizes cannot be explained.
[[nodiscard]] std::vector<Cut> ways_to_cut(std::int64_t logical,
                                           std::span<const std::int64_t> locals,
                                           const Holders& holders);

// Remembers them: a model has few sizes and many tensors.
class CutTable {
 public:
  // `holders` must stay where it is.
  [[nodiscard]] std::shared_ptr<const std::vector<Cut>> get(std::int64_t logical,
                                                            std::span<const std::int64_t> locals,
                                                            const Holders& holders);

 private:
  using Key = std::tuple<const Holders*, std::int64_t, std::vector<std::int64_t>>;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const std::vector<Cut>>> known_;
};

}  // namespace ttrace
