// The ranks that hold one tensor, and the axes along which they differ.
//
// Thread-safety: immutable after construction.
#pragma once

#include <ttrace/layout.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ttrace {

// Axes of a tensor's holders, as bits.
using AxisSet = std::uint32_t;

struct HolderAxis {
  std::string name;
  int size = 1;
  std::vector<int> coordinates;  // by holder
};

class Holders {
 public:
  // `layouts` by holder, ascending ranks.
  explicit Holders(std::vector<Layout> layouts);

  [[nodiscard]] std::size_t count() const { return layouts_.size(); }
  [[nodiscard]] const std::vector<Layout>& layouts() const { return layouts_; }
  // The axes that can cut or sum the tensor, which means that some holder has every coordinate. If
  // the holders cannot tell axes apart ("sp" that follows "tp", "etp" where it equals "tp"), only
  // the first one of the layout counts.
  [[nodiscard]] const std::vector<HolderAxis>& axes() const { return axes_; }
  // Whether every combination of coordinates belongs to equally many holders, at least one. Only
  // then can the axes cut and sum one tensor together.
  [[nodiscard]] bool independent(AxisSet set) const { return independent_[set]; }
  // Sets without bits of `taken` that are independent together with it, smaller sets first and the
  // empty set included. Of sets that tell the same holders apart ("tp", "kv" with "kv_copy"), only
  // the first is listed. Requires: `taken` is independent.
  [[nodiscard]] std::vector<AxisSet> free_sets(AxisSet taken) const;
  // Number of a holder's combination of coordinates on `set`, the first axis slowest.
  [[nodiscard]] int place(AxisSet set, std::size_t holder) const;
  // Product of the axes' sizes.
  [[nodiscard]] int combinations(AxisSet set) const;

 private:
  [[nodiscard]] bool find_independent(AxisSet set) const;
  [[nodiscard]] bool tell_alike(AxisSet left, AxisSet right) const;

  std::vector<Layout> layouts_;
  std::vector<HolderAxis> axes_;
  std::vector<bool> independent_;  // by set
};

}  // namespace ttrace
