#include "analysis/guess/data_flow.h"

#include "analysis/align/module_path.h"

#include <ttrace/element_type.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kSample = 24;       // numbers of an activation, to tell sums by
constexpr std::size_t kMostEarlier = 48;  // activations that are tried as summands
constexpr double kLargestRounding = 4.0;  // the largest one, in root mean squares
constexpr std::size_t kBits = 64;         // of a word of a set

void insert(std::vector<std::uint64_t>& set, std::size_t number) {
  set[number / kBits] |= std::uint64_t{1} << (number % kBits);
}

void insert_all(std::vector<std::uint64_t>& set, const std::vector<std::uint64_t>& more) {
  for (std::size_t word = 0; word < more.size(); ++word) {
    set[word] |= more[word];
  }
}

bool lies_within(const std::string& path, const std::string& outer) {
  return path != outer && lies_in(path, outer);
}

std::vector<double> sample_of(std::span<const double> numbers) {
  std::vector<double> sample;
  const std::size_t count = std::min(kSample, numbers.size());
  for (std::size_t i = 0; i < count; ++i) {
    sample.push_back(numbers[i * numbers.size() / count]);
  }
  return sample;
}

bool is_sum(std::span<const double> sum,
            std::span<const double> left,
            std::span<const double> right,
            double rounding) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const double expected = left[i] + right[i];
    if (std::abs(sum[i] - expected) > kLargestRounding * rounding * std::abs(expected)) {
      return false;
    }
  }
  return true;
}

}  // namespace

DataFlow::DataFlow(const GuessSide& side) : side_(side) {
  for (const auto& [path, module] : side.modules()) {
    modules_.push_back(&module);
  }
  std::ranges::stable_sort(modules_, {}, [](const GuessModule* module) {
    return std::pair(module->order, path_parts(module->path).size());
  });
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    numbers_.emplace(modules_[i]->path, i);
  }
  add_sketches();
  add_copies();
  needs_.assign(modules_.size(), Set(modules_.size() / kBits + 1, 0));
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    needs_[i] = needs_of(i);
  }
}

bool DataFlow::follows(const GuessModule& later, const GuessModule& earlier) const {
  const std::size_t number = numbers_.at(earlier.path);
  return (needs_[numbers_.at(later.path)][number / kBits] >> (number % kBits) & 1U) != 0;
}

std::uint64_t DataFlow::print_of(const std::optional<TensorId>& id) const {
  const auto unit =
      id ? side_.find(
               id->kind == Kind::kInput ? UnitRole::kInput : UnitRole::kOutput, id->path, id->slot)
         : std::nullopt;
  const auto sketch = unit ? sketches_.find(*unit) : sketches_.end();
  return sketch == sketches_.end() || !sketch->second.varies ? 0 : sketch->second.numbers;
}

void DataFlow::add_sketches() {
  for (UnitNumber number = 0; number < side_.units().size(); ++number) {
    const Unit& unit = side_.unit(number);
    const bool is_activation = is_of_module(unit.role) || unit.role == UnitRole::kData;
    const TensorValues values =
        is_activation && is_floating(side_.type_of(unit.id)) ? side_.values(number) : nullptr;
    if (values != nullptr && !numbers_of(*values).empty()) {
      const auto numbers = numbers_of(*values);
      sketches_[number] = {
          number, digest_in_any_order(numbers), sample_of(numbers), varies(*values)};
    }
  }
}

// A tensor that a module within returns last is what the module around it returns.
void DataFlow::add_copies() {
  std::map<std::pair<std::uint64_t, std::vector<double>>, std::vector<UnitNumber>> same;
  for (const auto& [number, sketch] : sketches_) {
    if (side_.unit(number).role == UnitRole::kOutput && sketch.varies) {
      same[{sketch.numbers, sketch.sample}].push_back(number);
    }
  }
  for (const auto& [print, units] : same) {
    for (const UnitNumber one : units) {
      for (const UnitNumber two : units) {
        const std::string& left = side_.unit(one).id.path;
        const std::string& right = side_.unit(two).id.path;
        if (side_.unit(one).shape == side_.unit(two).shape &&
            (lies_within(left, right) || lies_within(right, left))) {
          copies_[one].push_back(two);
        }
      }
    }
  }
}

const DataFlow::Sketch* DataFlow::sketch_of(const TensorId& id) const {
  const auto unit = side_.find(UnitRole::kOutput, id.path, id.slot);
  const auto found = unit ? sketches_.find(*unit) : sketches_.end();
  return found == sketches_.end() ? nullptr : &found->second;
}

std::optional<std::size_t> DataFlow::container_of(std::size_t module) const {
  for (const std::string& path : outer_paths(modules_[module]->path)) {
    const auto found = numbers_.find(path);
    if (found != numbers_.end() &&
        !(modules_[found->second]->inputs.empty() && modules_[found->second]->taken.empty())) {
      return found->second;
    }
  }
  return std::nullopt;
}

DataFlow::Set DataFlow::needs_of(std::size_t module) const {
  const GuessModule& own = *modules_[module];
  Set needs(modules_.size() / kBits + 1, 0);
  bool known = true;
  for (const auto& [slot, producer] : own.taken) {
    add_output(module, producer, needs);
  }
  for (const auto& [slot, unit] : own.inputs) {
    const auto sketch = sketches_.find(unit);
    // Whole numbers are samples or places, which no module computes.
    known = known && (sketch == sketches_.end() || add_origin(module, sketch->second, needs));
  }
  // Somebody computed the input between two modules, from what the module around it was given.
  const auto container = known ? std::nullopt : container_of(module);
  if (container && takes_one(*modules_[*container])) {
    insert_all(needs, needs_[*container]);
  }
  add_own_container(module, needs);
  return needs;
}

// Whether no other input is as large as the first one, so that what is computed within depends on
// it.
bool DataFlow::takes_one(const GuessModule& module) const {
  std::vector<std::int64_t> sizes;
  for (const auto& [slot, unit] : module.inputs) {
    sizes.push_back(element_count(side_.unit(unit).shape));
  }
  for (const auto& [slot, producer] : module.taken) {
    const auto unit = side_.find(UnitRole::kOutput, producer.path, producer.slot);
    if (unit && !module.inputs.contains(slot)) {
      sizes.push_back(element_count(side_.unit(*unit).shape));
    }
  }
  return !sizes.empty() && std::ranges::count(sizes, std::ranges::max(sizes)) == 1;
}

bool DataFlow::add_origin(std::size_t consumer, const Sketch& input, Set& needs) const {
  const std::vector<const Sketch*> origins = origin_of(input);
  for (const Sketch* origin : origins) {
    const Unit& unit = side_.unit(origin->unit);
    if (unit.role == UnitRole::kOutput) {
      add_output(consumer, unit.id, needs);
    } else if (unit.role == UnitRole::kInput) {
      insert_all(needs, needs_[numbers_.at(unit.id.path)]);
    }
  }
  return !origins.empty();
}

std::vector<const DataFlow::Sketch*> DataFlow::origin_of(const Sketch& input) const {
  const Unit& own = side_.unit(input.unit);
  const std::int64_t elements = element_count(own.shape);
  std::vector<const Sketch*> earlier;  // the first one first
  for (const auto& [number, sketch] : sketches_) {
    const Unit& unit = side_.unit(number);
    if (unit.order >= own.order || !sketch.varies || element_count(unit.shape) != elements) {
      continue;
    }
    if (sketch.numbers == input.numbers) {
      return {&sketch};  // of several names of one tensor the first one: it claims least
    }
    if (unit.shape == own.shape) {
      earlier.push_back(&sketch);
    }
  }
  if (earlier.size() > kMostEarlier) {
    earlier.erase(earlier.begin(), earlier.end() - kMostEarlier);
  }
  return summands_of(input, earlier);
}

std::vector<const DataFlow::Sketch*> DataFlow::summands_of(
    const Sketch& input, const std::vector<const Sketch*>& earlier) const {
  const auto rounding = [&](const Sketch* sketch) {
    return rounding_error(side_.type_of(side_.unit(sketch->unit).id));
  };
  for (std::size_t i = 0; i < earlier.size(); ++i) {
    for (std::size_t j = i + 1; j < earlier.size(); ++j) {
      const double limit = std::max({rounding(&input), rounding(earlier[i]), rounding(earlier[j])});
      if (!is_sum(input.sample, earlier[i]->sample, earlier[j]->sample, limit)) {
        continue;
      }
      const TensorValues sum = side_.values(input.unit);
      const TensorValues left = side_.values(earlier[i]->unit);
      const TensorValues right = side_.values(earlier[j]->unit);
      if (is_sum(numbers_of(*sum), numbers_of(*left), numbers_of(*right), limit)) {
        return {earlier[i], earlier[j]};
      }
    }
  }
  return {};
}

void DataFlow::add_module(std::size_t consumer, std::size_t module, Set& needs) const {
  const GuessModule& own = *modules_[module];
  insert(needs, module);
  insert_all(needs, needs_[module]);
  // Of a module that returns several tensors, nobody knows which of them what is within went into.
  if (own.outputs.size() != 1) {
    return;
  }
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    if (modules_[i]->order < modules_[consumer]->order &&
        lies_within(modules_[i]->path, own.path)) {
      insert(needs, i);
      insert_all(needs, needs_[i]);
    }
  }
}

void DataFlow::add_output(std::size_t consumer, const TensorId& output, Set& needs) const {
  const auto producer = numbers_.find(output.path);
  const Sketch* const sketch = sketch_of(output);
  std::set<std::size_t> returning;
  if (producer != numbers_.end()) {
    returning.insert(producer->second);
  }
  const auto copies = sketch == nullptr ? copies_.end() : copies_.find(sketch->unit);
  if (copies != copies_.end()) {
    for (const UnitNumber copy : copies->second) {
      returning.insert(numbers_.at(side_.unit(copy).id.path));
    }
  }
  for (const std::size_t module : returning) {
    // A module around the consumer has not returned yet.
    if (modules_[module]->order < modules_[consumer]->order &&
        !lies_within(modules_[consumer]->path, modules_[module]->path)) {
      add_module(consumer, module, needs);
    }
  }
}

void DataFlow::add_own_container(std::size_t module, Set& needs) const {
  const GuessModule& own = *modules_[module];
  const auto output = own.outputs.find(0);
  const auto copies = output == own.outputs.end() ? copies_.end() : copies_.find(output->second);
  if (copies == copies_.end()) {
    return;
  }
  for (const UnitNumber copy : copies->second) {
    const GuessModule& outer = *modules_[numbers_.at(side_.unit(copy).id.path)];
    if (!lies_within(own.path, outer.path) || outer.outputs.size() != 1) {
      continue;
    }
    std::vector<std::size_t> before;
    bool shown = true;
    for (std::size_t i = 0; i < modules_.size(); ++i) {
      const GuessModule& inner = *modules_[i];
      if (inner.order < own.order && lies_within(inner.path, outer.path) &&
          !lies_within(own.path, inner.path)) {
        before.push_back(i);
        // What is zero (a branch whose last weight begins with zeros) hides which branch it is.
        shown = shown && std::ranges::all_of(inner.outputs, [&](const auto& slot) {
                  const auto sketch = sketches_.find(slot.second);
                  return sketch != sketches_.end() && sketch->second.varies;
                });
      }
    }
    for (const std::size_t i : shown ? before : std::vector<std::size_t>()) {
      insert(needs, i);
      insert_all(needs, needs_[i]);
    }
  }
}

}  // namespace ttrace
