#include "analysis/guess/side.h"

#include "analysis/align/module_path.h"
#include "analysis/align/values.h"
#include "trace/base/random.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

namespace ttrace {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20U;  // of values that stay in memory
constexpr auto kNever = std::numeric_limits<std::uint64_t>::max();

std::optional<UnitRole> role_of(Kind kind) {
  switch (kind) {
    case Kind::kParam:
      return UnitRole::kParameter;
    case Kind::kInput:
      return UnitRole::kInput;
    case Kind::kOutput:
      return UnitRole::kOutput;
    case Kind::kData:
      return UnitRole::kData;
    case Kind::kLoss:
      return UnitRole::kLoss;
    default:
      return std::nullopt;
  }
}

}  // namespace

GuessSide::GuessSide(const Trace& trace) {
  TTRACE_CHECK(!trace.steps().empty(),
               UsageError,
               fmt::format("{} has no traced step; trace one (TTRACE_STEPS)", trace.directory()));
  const StepTrace& step = trace.steps().front();
  for (const RankFile& file : step.ranks) {
    for (const Record& record : file.records()) {
      const TensorId& id = record.id;
      const bool first = id.microbatch == microbatch_ || id.microbatch == kNoMicrobatch;
      if (!first || id.call != 0 || id.recompute) {
        continue;
      }
      const Shard shard = shard_of(file, record);
      auto& shards = shards_[id];
      if (shards.empty()) {
        add_unit(id, shard);
      }
      shards.push_back(shard);
    }
  }
  std::ranges::stable_sort(units_, {}, &Unit::order);
  for (UnitNumber number = 0; number < units_.size(); ++number) {
    const Unit& unit = units_[number];
    numbers_.emplace(std::tuple(unit.role, unit.id.path, unit.id.slot), number);
  }
  add_modules();
  add_edges(step);
}

void GuessSide::add_unit(const TensorId& id, const Shard& shard) {
  if (const auto role = role_of(id.kind)) {
    const Record& record = *shard.record;
    units_.push_back({*role, id, record.placement.logical_shape(), record.order});
  }
}

void GuessSide::add_modules() {
  const auto module = [&](const std::string& path) -> GuessModule& {
    const auto [found, is_new] = modules_.try_emplace(path);
    if (is_new) {
      found->second.path = path;
      found->second.order = kNever;
    }
    return found->second;
  };
  for (UnitNumber number = 0; number < units_.size(); ++number) {
    const Unit& unit = units_[number];
    if (is_of_module(unit.role)) {
      GuessModule& own = module(unit.id.path);
      (unit.role == UnitRole::kInput ? own.inputs : own.outputs)[unit.id.slot] = number;
      own.order = std::min(own.order, unit.order);
    } else if (unit.role == UnitRole::kParameter) {
      module(owner_of(unit.id.path)).parameters.push_back(number);
      for (const std::string& path : outer_paths(unit.id.path)) {
        module(path).all_parameters.insert(number);
      }
    }
  }
  // A module that recorded nothing of its own ran when the first one below it did, or at the
  // latest with the one around it.
  for (auto& [path, own] : modules_) {
    for (const std::string& outer : outer_paths(path)) {
      if (const auto found = modules_.find(outer); found != modules_.end() && own.order != kNever) {
        GuessModule& containing = found->second;
        if (containing.inputs.empty() && containing.outputs.empty()) {
          containing.order = std::min(containing.order, own.order);
        }
      }
    }
  }
  for (auto& [path, own] : modules_) {
    for (const std::string& outer : outer_paths(path)) {
      const auto found = modules_.find(outer);
      own.order = own.order == kNever && found != modules_.end() ? found->second.order : own.order;
    }
  }
}

void GuessSide::add_edges(const StepTrace& step) {
  for (const RankFile& file : step.ranks) {
    for (const Edge& edge : file.edges()) {
      if (edge.consumer.microbatch != microbatch_ || edge.consumer.call != 0 ||
          edge.consumer.recompute) {
        continue;
      }
      const auto [found, is_new] = modules_.try_emplace(edge.consumer.path);
      found->second.path = edge.consumer.path;
      found->second.order = is_new ? edge.order : std::min(found->second.order, edge.order);
      found->second.taken.emplace(edge.consumer.slot, edge.producer);
    }
  }
}

std::vector<TensorId> GuessSide::ids(std::span<const UnitNumber> numbers) const {
  std::vector<TensorId> ids;
  std::ranges::transform(
      numbers, std::back_inserter(ids), [&](UnitNumber number) { return unit(number).id; });
  return ids;
}

const GuessModule* GuessSide::module(const std::string& path) const {
  const auto found = modules_.find(path);
  return found == modules_.end() ? nullptr : &found->second;
}

std::optional<UnitNumber> GuessSide::find(UnitRole role, const std::string& path, int slot) const {
  const auto found = numbers_.find(std::tuple(role, path, slot));
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

TensorValues GuessSide::read(const TensorId& id) const {
  const auto shards = shards_.find(id);
  if (shards == shards_.end()) {
    return nullptr;
  }
  const MergeResult merged = merge(shards->second);
  if (!merged.has_tensor()) {
    return nullptr;
  }
  auto wide = std::make_shared<MergeResult>();
  wide->type = ElementType::kF64;
  wide->shape = merged.shape;
  const auto count = static_cast<std::size_t>(element_count(merged.shape));
  wide->storage.resize(count * sizeof(double));
  to_double(merged.type,
            merged.bytes.data(),
            static_cast<std::int64_t>(count),
            reinterpret_cast<double*>(wide->storage.data()));
  wide->bytes = wide->storage;
  const bool finite =
      std::ranges::all_of(numbers_of(*wide), [](double x) { return std::isfinite(x); });
  return finite ? wide : nullptr;
}

TensorValues GuessSide::values(const TensorId& id) const {
  if (const auto known = values_.find(id); known != values_.end()) {
    return known->second;
  }
  TensorValues read_now = read(id);
  if (values_bytes_ > kMostBytes) {
    values_.clear();
    values_bytes_ = 0;
  }
  values_bytes_ += read_now ? read_now->bytes.size() : 0;
  return values_.emplace(id, std::move(read_now)).first->second;
}

const ValueSummary& GuessSide::summary(const TensorId& id) const {
  const auto [place, is_new] = summaries_.try_emplace(id);
  if (const TensorValues own = is_new ? values(id) : nullptr) {
    const auto numbers = numbers_of(*own);
    place->second = {!numbers.empty() && varies(*own), numbers.size(), norm(numbers)};
  }
  return place->second;
}

ElementType GuessSide::type_of(const TensorId& id) const {
  const auto found = shards_.find(id);
  return found == shards_.end() ? ElementType::kF32 : found->second.front().record->type;
}

std::vector<TensorId> GuessSide::gradients(UnitNumber number) const {
  const Unit& unit = units_.at(number);
  std::vector<TensorId> ids;
  const auto add = [&](Kind kind, std::int64_t microbatch) {
    TensorId id = unit.id;
    id.kind = kind;
    id.microbatch = microbatch;
    if (has(id)) {
      ids.push_back(std::move(id));
    }
  };
  if (unit.role == UnitRole::kParameter) {
    add(Kind::kMainGrad, kNoMicrobatch);
    add(Kind::kParamGrad, microbatch_);
  } else if (unit.role == UnitRole::kInput) {
    add(Kind::kGradInput, microbatch_);
  } else if (unit.role == UnitRole::kOutput) {
    add(Kind::kGradOutput, microbatch_);
  }
  return ids;
}

std::optional<TensorId> GuessSide::source_of(const GuessModule& module, int slot) const {
  if (const auto own = module.inputs.find(slot); own != module.inputs.end()) {
    return unit(own->second).id;
  }
  const auto taken = module.taken.find(slot);
  return taken == module.taken.end() ? std::nullopt : std::optional(taken->second);
}

std::uint64_t digest_in_any_order(std::span<const double> numbers) {
  std::uint64_t sum = 0;
  for (const double number : numbers) {
    sum += scramble(std::bit_cast<std::uint64_t>(number == 0.0 ? 0.0 : number));
  }
  return sum;
}

std::string owner_of(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? std::string() : parameter.substr(0, dot);
}

bool varies(const MergeResult& tensor) {
  const auto numbers = numbers_of(tensor);
  return std::ranges::any_of(numbers, [&](double number) { return number != numbers.front(); });
}

std::span<const double> numbers_of(const MergeResult& tensor) {
  return {reinterpret_cast<const double*>(tensor.bytes.data()),
          tensor.bytes.size() / sizeof(double)};
}

}  // namespace ttrace
