// Some elements of one tensor on every rank that holds it, and how well the reference agrees with a
// claim about where they lie.
//
// The figure is e = min over alpha of ||alpha v - r|| / ||r||, v the elements (sums of them, where
// addends are claimed) and r the reference's at the places claimed: 0 for equal values, about 1 for
// unrelated ones, the round-off between both runs where the claim is right.
//
// Thread-safety: immutable after construction.
#pragma once

#include "trace/merge/merge.h"

#include <ttrace/element_type.h>
#include <ttrace/placement.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ttrace {

// The declared placement of every holder's local tensor.
struct PlaceClaim {
  std::vector<std::vector<const DimPlacement*>> dims;  // by holder, then dimension
  std::vector<std::vector<std::size_t>> groups;        // holders whose values are added
  std::vector<double> scales = {};                     // by holder; empty: 1
};

struct Agreement {
  std::int64_t points = 0;                                       // compared
  double error = std::numeric_limits<double>::infinity();        // at the best factor
  double error_as_is = std::numeric_limits<double>::infinity();  // at factor 1
  double factor = 1.0;                                           // the best one
  bool both_zero = false;                                        // nothing but zeros was compared
};

// Values and what the reference has at the places claimed, as they come.
class AgreementSums {
 public:
  // What is not finite is left out.
  void add(double value, double expected);
  [[nodiscard]] Agreement agreement() const;

 private:
  std::int64_t points_ = 0;
  double squared_ = 0.0;  // of values, of the reference, their product and their difference
  double reference_squared_ = 0.0;
  double along_ = 0.0;
  double difference_squared_ = 0.0;
};

// The element at row-major `position`.
[[nodiscard]] double element_at(ElementType type,
                                std::span<const std::byte> bytes,
                                std::int64_t position);

// The logical index of a local one; kPadding where there is none.
[[nodiscard]] std::int64_t logical_index(const DimPlacement& dim, std::int64_t local);

class Samples {
 public:
  // `reference` and `shards` must stay. Requires: shards of as many dimensions as the reference.
  Samples(std::span<const Shard> shards, const MergeResult& reference);

  // Elements taken of a rank with most of them.
  [[nodiscard]] std::size_t count() const { return longest_; }
  // Compares the first `limit` elements of every holder, those in padding with zero. Elements that
  // are not finite are left out. Requires: holders of one group have one local shape.
  [[nodiscard]] Agreement compare(const PlaceClaim& claim, std::size_t limit) const;
  // Whether the holders of every group have one local shape.
  [[nodiscard]] bool can_add(const std::vector<std::vector<std::size_t>>& groups) const;

 private:
  struct Positions {
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> indices;  // local, one after the other
    std::size_t count = 0;
  };
  void choose(std::span<const Shard> shards);

  const MergeResult& reference_;
  std::size_t dims_;
  std::vector<Positions> positions_;         // one per local shape
  std::vector<std::size_t> positions_of_;    // by holder
  std::vector<std::vector<double>> values_;  // by holder
  std::size_t longest_ = 0;
};

}  // namespace ttrace
