// One trace as the guess of a rename map sees it: the tensors of its first step and micro-batch,
// and the modules that own them.
//
// Thread-safety: one thread at a time; values are read when they are first asked for.
#pragma once

#include "trace/base/tensor_id_hash.h"
#include "trace/file/trace_reader.h"
#include "trace/merge/merge.h"

#include <ttrace/tensor_id.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace ttrace {

// What a name stands for: one parameter, or one slot of what a module takes or returns. Gradients
// and moments belong to it.
enum class UnitRole : std::uint8_t { kParameter, kInput, kOutput, kData, kLoss };

// Whether a module takes or returns it.
[[nodiscard]] constexpr bool is_of_module(UnitRole role) {
  return role == UnitRole::kInput || role == UnitRole::kOutput;
}

struct Unit {
  UnitRole role = UnitRole::kParameter;
  TensorId id;                      // of its value
  std::vector<std::int64_t> shape;  // logical
  std::uint64_t order = 0;          // in which the trace has it
};

// Number of a unit within its side.
using UnitNumber = std::size_t;

struct GuessModule {
  std::string path;
  std::uint64_t order = 0;              // when it first ran
  std::map<int, UnitNumber> inputs;     // by slot
  std::map<int, UnitNumber> outputs;    // by slot
  std::map<int, TensorId> taken;        // inputs that are another module's output, by slot
  std::vector<UnitNumber> parameters;   // its own
  std::set<UnitNumber> all_parameters;  // its own, and those of modules below it
};

// The whole tensor in F64; null if it was not recorded, is not whole, or is not finite.
using TensorValues = std::shared_ptr<const MergeResult>;

// What is kept of a tensor's values.
struct ValueSummary {
  bool varies = false;  // there are values, and not all of them are the same number
  std::size_t elements = 0;
  double norm = 0.0;  // Frobenius norm
};

class GuessSide {
 public:
  // Keeps a reference to the trace. Throws UsageError if the trace has no step.
  explicit GuessSide(const Trace& trace);

  [[nodiscard]] const std::vector<Unit>& units() const { return units_; }
  [[nodiscard]] const Unit& unit(UnitNumber number) const { return units_.at(number); }
  [[nodiscard]] std::vector<TensorId> ids(std::span<const UnitNumber> numbers) const;
  // By path. A module that only owns parameters is one, too.
  [[nodiscard]] const std::map<std::string, GuessModule>& modules() const { return modules_; }
  // Null if there is none.
  [[nodiscard]] const GuessModule* module(const std::string& path) const;
  // Nothing if there is none.
  [[nodiscard]] std::optional<UnitNumber> find(UnitRole role,
                                               const std::string& path,
                                               int slot = 0) const;

  // Read from the file unless it was used lately, so that the values of a large trace are never in
  // memory all at once.
  [[nodiscard]] TensorValues values(const TensorId& id) const;
  [[nodiscard]] TensorValues values(UnitNumber number) const { return values(unit(number).id); }
  [[nodiscard]] const ValueSummary& summary(const TensorId& id) const;
  // The element type of the record; F32 if nobody recorded it.
  [[nodiscard]] ElementType type_of(const TensorId& id) const;
  [[nodiscard]] bool has(const TensorId& id) const { return shards_.contains(id); }
  // Gradients of the unit that were recorded.
  [[nodiscard]] std::vector<TensorId> gradients(UnitNumber number) const;
  // The tensor that feeds the input: its own record, or the output that it is.
  [[nodiscard]] std::optional<TensorId> source_of(const GuessModule& module, int slot) const;

 private:
  [[nodiscard]] TensorValues read(const TensorId& id) const;
  void add_unit(const TensorId& id, const Shard& shard);
  void add_edges(const StepTrace& step);
  void add_modules();

  std::int64_t microbatch_ = 0;
  std::vector<Unit> units_;
  std::map<std::tuple<UnitRole, std::string, int>, UnitNumber> numbers_;  // by role, path and slot
  std::map<std::string, GuessModule> modules_;
  std::unordered_map<TensorId, std::vector<Shard>, TensorIdHash> shards_;
  mutable std::unordered_map<TensorId, TensorValues, TensorIdHash> values_;  // used lately
  mutable std::size_t values_bytes_ = 0;
  mutable std::unordered_map<TensorId, ValueSummary, TensorIdHash> summaries_;
};

// The path of the module that owns a parameter; empty for the model itself.
[[nodiscard]] std::string owner_of(const std::string& parameter);

// Whether not all elements are the same number.
[[nodiscard]] bool varies(const MergeResult& tensor);

// Equal for the same numbers in any order.
[[nodiscard]] std::uint64_t digest_in_any_order(std::span<const double> numbers);

// Elements as doubles. Requires: a tensor of GuessSide::values().
[[nodiscard]] std::span<const double> numbers_of(const MergeResult& tensor);

}  // namespace ttrace
