// Decides which sample of the reference every sample of the candidate is.
//
// Equal samples are dealt in order. A sample that keeps its place, where it may, keeps it. What no
// sample of the reference equals is unknown, unless floating-point numbers alone say so, which
// another precision changes: then it keeps its own place, if all that is known of its micro-batch
// does, and the comparison shows what differs.
//
// Thread-safety: values and a free function without shared state.
#pragma once

#include "trace/samples/data_rows.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace ttrace {

class DealtSamples {
 public:
  explicit DealtSamples(const DataRows& rows);

  // Nothing is known of any sample, and the two sides have other numbers of them.
  [[nodiscard]] bool knows_nothing() const { return knows_nothing_; }
  // Every sample keeps its place, and has as many positions there.
  [[nodiscard]] bool is_identity() const { return moved_.empty(); }
  // Nothing for a sample that is unknown.
  [[nodiscard]] std::optional<SamplePlace> place_of(const ClaimedSample& sample) const;
  [[nodiscard]] bool has(const ClaimedSample& sample) const { return places_.contains(sample); }

  // Micro-batches of the candidate in which a sample lies elsewhere, has another number of
  // positions, or is unknown.
  [[nodiscard]] const std::set<std::int64_t>& moved() const { return moved_; }
  // Those whose samples are all in one micro-batch of the reference.
  [[nodiscard]] std::optional<std::int64_t> only_target(std::int64_t microbatch) const;
  // Micro-batches of the reference that the samples of one of the candidate are in.
  [[nodiscard]] const std::set<std::int64_t>& targets(std::int64_t microbatch) const;
  // Micro-batches of the candidate whose samples are in one of the reference.
  [[nodiscard]] const std::set<std::int64_t>& sources(std::int64_t microbatch) const;
  // Micro-batches of the reference of which moved samples are a part, and that are not read
  // exactly once.
  [[nodiscard]] const std::set<std::int64_t>& incomplete() const { return incomplete_; }
  // Those that are, by moved samples.
  [[nodiscard]] const std::set<std::int64_t>& complete() const { return complete_; }
  // Whether the candidate has its samples one after the other.
  [[nodiscard]] bool is_natural(std::int64_t microbatch) const;
  // How many samples a micro-batch of the reference has. Requires: it is one that data speak of.
  [[nodiscard]] std::int64_t count_of(std::int64_t microbatch) const {
    return counts_.at(microbatch);
  }
  // The samples of the candidate that are this one of the reference.
  [[nodiscard]] std::vector<ClaimedSample> readers(const SamplePlace& place) const;
  [[nodiscard]] const std::map<ClaimedSample, std::optional<SamplePlace>>& all() const {
    return places_;
  }

 private:
  void deal(const DataRows& rows);
  void keep_own_places(const DataRows& rows);
  void connect(const DataRows& rows);

  std::map<std::int64_t, std::int64_t> counts_;  // of the reference, by micro-batch
  std::map<ClaimedSample, std::optional<SamplePlace>> places_;
  std::map<SamplePlace, std::vector<ClaimedSample>> readers_;
  std::map<std::int64_t, std::set<std::int64_t>> targets_;
  std::map<std::int64_t, std::set<std::int64_t>> sources_;
  std::set<std::int64_t> with_unknown_;
  std::set<std::int64_t> moved_;
  std::set<std::int64_t> incomplete_;
  std::set<std::int64_t> complete_;
  bool knows_nothing_ = false;
};

}  // namespace ttrace
