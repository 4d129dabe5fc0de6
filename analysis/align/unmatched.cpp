#include "analysis/align/unmatched.h"

#include "analysis/align/module_path.h"
#include "analysis/findings/wording.h"
#include "trace/base/edit_distance.h"
#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kNearest = 3;
constexpr double kPartAdded = 0.7;     // a part that only one path has; a wrong part costs up to 1
constexpr double kSameElements = 0.5;  // another shape of as many elements
constexpr double kOtherShape = 1.5;

// 0 for equal parts, 1 if every letter differs.
double part_distance(const std::string& left, const std::string& right) {
  if (left == right) {
    return 0.0;
  }
  if (left == "*" || right == "*") {
    return 1.0;
  }
  return static_cast<double>(edit_distance(left, right)) /
         static_cast<double>(std::max(left.size(), right.size()));
}

double path_distance(const std::vector<std::string>& left, const std::vector<std::string>& right) {
  return edit_distance(left.size(), right.size(), kPartAdded, [&](std::size_t i, std::size_t j) {
    return part_distance(left[i], right[j]);
  });
}

double shape_distance(const std::vector<std::int64_t>& left,
                      const std::vector<std::int64_t>& right) {
  return left == right                                 ? 0.0
         : element_count(left) == element_count(right) ? kSameElements
                                                       : kOtherShape;
}

// Tensors of the names and kinds of one side. Parameters and activations of one path are apart.
struct Group {
  UnmatchedName name;
  std::vector<std::string> parts;
};

bool have_common_kind(const Group& left, const Group& right) {
  return std::ranges::any_of(left.name.kinds,
                             [&](Kind kind) { return right.name.kinds.contains(kind); });
}

void add_nearest(Group& group, const std::vector<Group>& others) {
  std::vector<std::pair<double, const Group*>> by_distance;
  for (const Group& candidate : others) {
    if (candidate.name.side != group.name.side && have_common_kind(group, candidate)) {
      by_distance.emplace_back(path_distance(group.parts, candidate.parts) +
                                   shape_distance(group.name.shape, candidate.name.shape),
                               &candidate);
    }
  }
  std::ranges::stable_sort(by_distance, {}, &std::pair<double, const Group*>::first);
  for (std::size_t i = 0; i < std::min(kNearest, by_distance.size()); ++i) {
    const UnmatchedName& near = by_distance[i].second->name;
    group.name.nearest.push_back({near.path, near.shape});
  }
}

// The first three names of the reference, each with the nearest one of the candidate.
std::string nearest_pairs(std::span<const UnmatchedName> names) {
  std::string text;
  std::size_t count = 0;
  for (const UnmatchedName& name : names) {
    if (name.side == Names::kReference && !name.nearest.empty() && count < 3) {
      const NearName& near = name.nearest.front();
      text += fmt::format("{}{} {} and {} {}",
                          count++ == 0 ? "" : ", ",
                          name.path,
                          shape_text(name.shape),
                          near.path,
                          shape_text(near.shape));
    }
  }
  return text;
}

}  // namespace

std::vector<UnmatchedName> find_unmatched(std::span<const Match* const> matches) {
  std::vector<Group> groups;
  std::map<std::tuple<Names, std::string, bool>, std::size_t> places;
  for (const Match* match : matches) {
    const Names side = match->candidate.empty() ? Names::kReference : Names::kCandidate;
    const auto& shards = match->candidate.empty() ? match->reference : match->candidate;
    const std::string path = pattern_of(match->id.path);
    const auto [place, is_new] =
        places.try_emplace({side, path, is_of_parameter(match->id.kind)}, groups.size());
    if (is_new) {
      groups.push_back({{.side = side,
                         .path = path,
                         .kinds = {},
                         .tensors = 0,
                         .shape = shards.front().record->placement.logical_shape(),
                         .nearest = {}},
                        path_parts(path)});
    }
    UnmatchedName& name = groups[place->second].name;
    name.kinds.insert(match->id.kind);
    ++name.tensors;
  }
  for (Group& group : groups) {
    add_nearest(group, groups);
  }
  std::ranges::stable_partition(
      groups, [](const Group& group) { return group.name.side == Names::kReference; });
  std::vector<UnmatchedName> names;
  for (Group& group : groups) {
    names.push_back(std::move(group.name));
  }
  return names;
}

void require_common_id(std::span<const Match> matches, const Trace& r, const Trace& c) {
  const bool common = std::any_of(matches.begin(), matches.end(), [](const Match& match) {
    return !match.reference.empty() && !match.candidate.empty();
  });
  if (common) {
    return;
  }
  std::string in_reference = "nothing";
  std::string in_candidate = "nothing";
  std::vector<const Match*> all;
  for (const Match& match : matches) {
    (match.candidate.empty() ? in_reference : in_candidate) = to_string(match.id);
    all.push_back(&match);
  }
  const std::string nearest = nearest_pairs(find_unmatched(all));
  TTRACE_THROW(
      UsageError,
      fmt::format(
          "no tensor is in both traces; {} holds for example {}, {} holds {}{}; give modules the "
          "same names in both programs, or pair the names with --rename FILE (docs/rename.md)",
          r.directory(),
          in_reference,
          c.directory(),
          in_candidate,
          nearest.empty() ? "" : "; the nearest names are " + nearest));
}

}  // namespace ttrace
