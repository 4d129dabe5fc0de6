// Looks for the smallest magnitude at which each detector finds a mutant in all batches, and runs
// no more than that takes.
//
// Thread-safety: one search per object, on one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace::roc {

// The result of one run.
struct Observation {
  std::string problem = {};  // why there is no verdict; else empty
  bool changed = false;      // some bit differs from the clean run's; else it was rounded away
  // Detectors that raised a finding: of a clean run any, of a mutant one at its own tensors.
  std::set<std::string> flagged = {};
  std::set<std::string> present = {};  // detectors that looked at anything
};

// The smallest i below `count` with found(i), where found(i) means found(i + 1); `count` if there
// is none.
[[nodiscard]] std::size_t first_found(std::size_t count,
                                      const std::function<bool(std::size_t)>& found);

class Search {
 public:
  // Runs the mutant at a magnitude, by index, with a batch, by index.
  using Run = std::function<Observation(std::size_t magnitude, std::size_t batch)>;

  // `cleans`: the result of each batch's clean run. A detector that raises an alarm there cannot
  // distinguish a mutant from that, so it finds nothing.
  Search(std::size_t magnitudes, std::vector<Observation> cleans, Run run);

  // For every detector of any run, clean runs included: the index of the smallest magnitude that it
  // finds in all batches; nothing if it finds none. A run without a verdict finds nothing.
  [[nodiscard]] std::map<std::string, std::optional<std::size_t>> smallest();

  // All runs so far, by magnitude and batch.
  [[nodiscard]] const std::map<std::pair<std::size_t, std::size_t>, Observation>& observations()
      const {
    return observations_;
  }

 private:
  [[nodiscard]] const Observation& observe(std::size_t magnitude, std::size_t batch);
  [[nodiscard]] bool found_in_all(const std::string& detector, std::size_t magnitude);

  std::size_t magnitudes_;
  std::vector<Observation> cleans_;
  Run run_;
  std::map<std::pair<std::size_t, std::size_t>, Observation> observations_;
};

}  // namespace ttrace::roc
