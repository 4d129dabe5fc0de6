#include "analysis/rename/rename_plan.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <optional>

namespace ttrace {
namespace {

// The input of a module that has parts is the same tensor as those of its parts.
bool is_shared_by_parts(Kind kind) {
  return traits_of(kind).of_module_input;
}

// Tensors that a module with parts has once for all of them, in a way that no rearrangement of
// theirs gives.
bool has_no_parts(Kind kind) {
  switch (family_of(kind)) {
    case KindFamily::kRouting:
    case KindFamily::kQuantisation:
    case KindFamily::kScalar:
    case KindFamily::kCollective:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::pair<std::int64_t, std::uint64_t> order_of(const Conversion& conversion) {
  std::pair<std::int64_t, std::uint64_t> last;
  for (const Match* source : conversion.sources) {
    last = std::max(last, {source->id.step, source->order});
  }
  return last;
}

RenamePlan::RenamePlan(const RenameMap& map, Names from)
    : map_(map), from_(from), used_(map.rule_count(), false) {}

void RenamePlan::add(const Match& tensor) {
  Counterparts names = map_.find(from_, tensor.id);
  if (names.rule) {
    used_[*names.rule] = true;
  }
  if (names.of(other(from_)).empty()) {
    ++only_here_;
    return;
  }
  const bool has_parts = names.reference.size() + names.candidate.size() > 2;
  if (has_parts && has_no_parts(tensor.id.kind)) {
    names = {{tensor.id}, {tensor.id}, std::nullopt};
  }
  const std::vector<TensorId> sources = names.of(from_);
  const std::vector<TensorId> targets = names.of(other(from_));
  if (sources.size() > 1 && !is_shared_by_parts(tensor.id.kind)) {
    add_part(tensor, std::move(names));
  } else if (sources.size() == 1 || !targets_.contains(targets.front())) {
    const bool shared = is_shared_by_parts(tensor.id.kind);
    finish({std::move(names), {&tensor}, targets, shared, {}});
  }
}

std::vector<Conversion> RenamePlan::result(std::vector<std::string>& notes) {
  std::map<std::string, std::pair<std::size_t, std::string>> lonely;  // by entry
  for (auto& [target, conversion] : open_) {
    for (const Match* part : conversion.sources) {
      if (part != nullptr) {
        auto& [count, first] = lonely[map_.place_of(*conversion.names.rule)];
        first = count++ == 0 ? to_string(part->id) : first;
        finish({{{part->id}, {part->id}, std::nullopt}, {part}, {part->id}, false, {}});
      }
    }
  }
  open_.clear();
  for (const auto& [place, parts] : lonely) {
    notes.push_back(
        fmt::format("{}: the trace has {} of a tensor without its other parts; the first is {}",
                    place,
                    counted(parts.first, "part"),
                    parts.second));
  }
  std::ranges::stable_sort(done_, [](const Conversion& left, const Conversion& right) {
    return order_of(left) < order_of(right);
  });
  return std::move(done_);
}

void RenamePlan::add_part(const Match& tensor, Counterparts names) {
  const TensorId target = names.of(other(from_)).front();
  const std::vector<TensorId>& parts = names.of(from_);
  const auto place = static_cast<std::size_t>(std::ranges::find(parts, tensor.id) - parts.begin());
  Conversion& conversion = open_[target];
  if (conversion.sources.empty()) {
    conversion.names = std::move(names);
    conversion.sources.resize(conversion.names.of(from_).size(), nullptr);
    conversion.targets = {target};
  }
  conversion.sources.at(place) = &tensor;
  if (std::ranges::count(conversion.sources, nullptr) == 0) {
    finish(std::move(conversion));
    open_.erase(target);
  }
}

void RenamePlan::finish(Conversion conversion) {
  for (const TensorId& target : conversion.targets) {
    const auto [taken, is_new] = targets_.emplace(target, conversion.sources.front()->id);
    TTRACE_CHECK(
        is_new,
        UsageError,
        fmt::format("{}: {} and {} both become {}; correct the entries, or write ~ for the one "
                    "that the other program does not have",
                    conversion.names.rule ? map_.place_of(*conversion.names.rule) : map_.origin(),
                    to_string(conversion.sources.front()->id),
                    to_string(taken->second),
                    to_string(target)));
  }
  done_.push_back(std::move(conversion));
}

}  // namespace ttrace
