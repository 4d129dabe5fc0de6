#include "analysis/checks/one_sided_states.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"

#include <fmt/core.h>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace ttrace {
namespace {

using Name = std::pair<Kind, std::string>;

// What was kept before the step is called as what the step leaves of it.
Name name_of(const TensorVerdict& tensor) {
  const Kind kind = tensor.id.kind;
  if (is_moment(kind) || kind == Kind::kMaster) {
    return {Kind::kState, std::string(ttrace::name_of(kind))};
  }
  return {kind == Kind::kStateBefore ? Kind::kState : kind, state_name_of(tensor.id)};
}

bool is_on_one_side(const TensorVerdict& tensor) {
  return tensor.fails(Question::kPresence);
}

// Names of states that a side has of any parameter, as the step leaves it.
std::set<Name> names_on(std::span<const TensorVerdict> tensors, Names side) {
  std::set<Name> names;
  for (const TensorVerdict& tensor : tensors) {
    const bool is_here =
        !is_on_one_side(tensor) || tensor.is_in_reference == (side == Names::kReference);
    const bool is_left = traits_of(tensor.id.kind).of_update;
    if (is_left && is_here) {
      names.insert(name_of(tensor));
    }
  }
  return names;
}

Names side_with(const TensorVerdict& tensor) {
  return tensor.is_in_reference ? Names::kReference : Names::kCandidate;
}

}  // namespace

Excuses one_sided_states(std::span<const TensorVerdict> tensors) {
  const std::set<Name> reference = names_on(tensors, Names::kReference);
  const std::set<Name> candidate = names_on(tensors, Names::kCandidate);
  return excused(tensors, Excuse::kOneSided, [&](const TensorVerdict& tensor) {
    if (!is_on_one_side(tensor)) {
      return false;
    }
    const std::set<Name>& others = tensor.is_in_reference ? candidate : reference;
    // Beside a reference that updates its parameters themselves.
    const bool is_further_master = tensor.id.kind == Kind::kMaster && !tensor.is_in_reference;
    return tensor.id.kind == Kind::kBuffer ||
           ((is_further_master || is_named_state(tensor.id.kind)) &&
            !others.contains(name_of(tensor)));
  });
}

std::vector<UnseenPart> unseen_states(std::span<const TensorVerdict> tensors) {
  std::map<std::pair<Names, Name>, std::size_t> counts;
  for (const TensorVerdict& tensor : tensors) {
    const Kind kind = tensor.id.kind;
    const bool is_kept = (is_named_state(kind) && kind != Kind::kStateBefore) ||
                         kind == Kind::kMaster || kind == Kind::kBuffer;
    if (is_kept && is_on_one_side(tensor) && tensor.has(Excuse::kOneSided)) {
      ++counts[{side_with(tensor), name_of(tensor)}];
    }
  }
  std::vector<UnseenPart> parts;
  for (const auto& [key, count] : counts) {
    const auto& [side, name] = key;
    const std::string what = name.first == Kind::kBuffer
                                 ? counted(count, "buffer")
                                 : "`" + name.second + "` of " + counted(count, "parameter");
    parts.push_back({NotSeenKind::kState,
                     side,
                     fmt::format("only the {} has {}", ttrace::name_of(side), what)});
  }
  return parts;
}

}  // namespace ttrace
