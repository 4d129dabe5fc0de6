// Which modules of two programs can belong together, where no value says it: the parameters have
// shapes that fit, and what must run after something in one program does so in the other one.
//
// Modules without an order of their own (two towers, two heads, two weights that take one tensor)
// can run in any order, and have any names. Neither decides between them.
//
// Thread-safety: immutable after construction.
#pragma once

#include "analysis/guess/pairings.h"
#include "analysis/guess/parameter_shapes.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace ttrace {

inline constexpr std::size_t kMostParts = 3;  // that one module is put together from

class PossiblePairs {
 public:
  using Sequence = std::vector<const GuessModule*>;

  // Whether a module is one of several that the other side has as one, or is that one.
  enum class Parts : std::uint8_t { kNo, kMaybe, kYes };

  // The modules of both sides that own parameters, in the order in which they ran.
  // Keeps a reference to the state.
  PossiblePairs(const GuessState& state,
                const Sequence& reference,
                const Sequence& candidate,
                const std::function<Parts(Names, const GuessModule&)>& parts_of);

  // What the module can belong to.
  [[nodiscard]] Sequence of(Names side, const GuessModule& module) const;
  // Whether both programs have as many modules of its shapes.
  [[nodiscard]] bool counted(Names side, const GuessModule& module) const;

 private:
  struct Module {
    const GuessModule* module = nullptr;
    std::uint64_t last = 0;     // when it ran at the latest
    std::int64_t returned = 0;  // elements of its output; 0: unknown
    std::size_t alike = 1;      // modules of its shapes that take its tensor
    Parts parts = Parts::kNo;
    bool has_partner =
        false;                // every module of its shapes has one: there are as many on both sides
    std::uint64_t taken = 0;  // what tells its input from others; 0: unknown
    std::uint64_t gives = 0;  // and its output
    std::vector<std::int64_t> parameters;  // their elements
    std::vector<std::size_t> later;        // modules that are known to compute with its output
  };
  struct Side {
    std::vector<Module> modules;
    std::vector<std::vector<bool>> can;  // with modules of the other side
  };

  void add(Names side,
           const Sequence& sequence,
           const std::function<Parts(Names, const GuessModule&)>& parts_of);
  void add_flow(Side& side, const DataFlow& flow);
  void count_shapes();
  void allow_all();
  void allow_parts(Names parts);
  [[nodiscard]] bool can_be(const Module& reference, const Module& candidate) const;
  void forbid(Names side, std::size_t own, std::size_t other_module);
  void forbid_by_rank(Names side);
  void forbid_by_order(Names side);
  void forbid_by_neighbour(Names side,
                           std::uint64_t Module::*near_end,
                           std::uint64_t Module::*far_end);
  void forbid_taken(Names side);
  // The only module that this one can belong to.
  [[nodiscard]] static std::optional<std::size_t> only(const std::vector<bool>& can);
  // Whether the first one can have run before the second one.
  [[nodiscard]] static bool can_precede(const Module& first, const Module& second);
  // Whether the parts return as much as the whole does, as far as that is known.
  [[nodiscard]] static bool return_as_much(std::span<const Module> parts, const Module& whole);

  const GuessState& state_;
  ParameterShapes shapes_;
  Both<Side> sides_;
  bool changed_ = false;
};

}  // namespace ttrace
