// Which modules of a program must run after which others, because they compute with what those
// returned.
//
// The trace knows only those inputs that are another module's output as it is. Copies, other orders
// of dimensions, and sums (residual streams) are found by their values. Where nothing is found,
// nothing is claimed.
//
// Thread-safety: immutable after construction.
#pragma once

#include "analysis/guess/side.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ttrace {

class DataFlow {
 public:
  // Keeps a reference.
  explicit DataFlow(const GuessSide& side);

  // Whether `later` is known to compute with what `earlier` returned.
  [[nodiscard]] bool follows(const GuessModule& later, const GuessModule& earlier) const;
  // Equal for activations of the same numbers in any order; 0 if nobody knows, or they are
  // constant.
  [[nodiscard]] std::uint64_t print_of(const std::optional<TensorId>& id) const;

 private:
  // Modules by number, one bit each.
  using Set = std::vector<std::uint64_t>;

  // An activation, and what tells it from others.
  struct Sketch {
    UnitNumber unit = 0;
    std::uint64_t numbers = 0;   // equal for the same numbers in any order
    std::vector<double> sample;  // at places that depend on the shape alone
    bool varies = false;
  };

  void add_sketches();
  void add_copies();
  [[nodiscard]] const Sketch* sketch_of(const TensorId& id) const;

  [[nodiscard]] bool takes_one(const GuessModule& module) const;
  [[nodiscard]] Set needs_of(std::size_t module) const;
  // Adds where the recorded input comes from; false if nobody knows.
  [[nodiscard]] bool add_origin(std::size_t consumer, const Sketch& input, Set& needs) const;
  // Earlier activations of which the input is a copy, a rearrangement or the sum.
  [[nodiscard]] std::vector<const Sketch*> origin_of(const Sketch& input) const;
  [[nodiscard]] std::vector<const Sketch*> summands_of(
      const Sketch& input, const std::vector<const Sketch*>& earlier) const;
  void add_output(std::size_t consumer, const TensorId& output, Set& needs) const;
  void add_module(std::size_t consumer, std::size_t module, Set& needs) const;
  // What ran before the module within one around it that returns the same tensor.
  void add_own_container(std::size_t module, Set& needs) const;
  [[nodiscard]] std::optional<std::size_t> container_of(std::size_t module) const;

  const GuessSide& side_;
  std::vector<const GuessModule*> modules_;  // in the order in which they ran
  std::map<std::string, std::size_t> numbers_;
  std::map<UnitNumber, Sketch> sketches_;  // of floating activations, by unit
  // Outputs of modules, and the same tensors as outputs of modules around them, or within.
  std::map<UnitNumber, std::vector<UnitNumber>> copies_;
  std::vector<Set> needs_;
};

}  // namespace ttrace
