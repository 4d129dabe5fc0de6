#include "analysis/guess/layer_patterns.h"

#include "analysis/align/module_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

namespace ttrace {
namespace {

constexpr std::size_t kMostNumbers = 6;  // of one path, which may become stars

bool is_number(const std::string& part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, "."));
}

std::vector<std::size_t> numbers_in(const std::vector<std::string>& parts) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (is_number(parts[i])) {
      places.push_back(i);
    }
  }
  return places;
}

// The path with stars for these numbers, which it must have in this order.
std::optional<std::string> starred(const std::string& path, std::span<const std::string> numbers) {
  std::vector<std::string> parts = path_parts(path);
  std::size_t next = 0;
  for (std::string& part : parts) {
    if (next < numbers.size() && part == numbers[next]) {
      part = "*";
      ++next;
    }
  }
  return next == numbers.size() ? std::optional(joined(parts)) : std::nullopt;
}

// The group with the numbers of its first path that `chosen` marks as stars.
std::optional<PathGroup> starred(const PathGroup& group, std::uint32_t chosen) {
  const std::string& first =
      group.reference.empty() ? group.candidate.front() : group.reference.front();
  std::vector<std::string> parts = path_parts(first);
  const std::vector<std::size_t> places = numbers_in(parts);
  std::vector<std::string> numbers;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if ((chosen >> i & 1U) != 0) {
      numbers.push_back(parts[places[i]]);
      parts[places[i]] = "*";
    }
  }
  PathGroup pattern;
  for (const Names side : kBothNames) {
    for (const std::string& path : group.of(side)) {
      const auto with_stars =
          &path == &first ? std::optional(joined(parts)) : starred(path, numbers);
      if (!with_stars) {
        return std::nullopt;
      }
      pattern.of(side).push_back(*with_stars);
    }
  }
  return pattern;
}

}  // namespace

std::vector<PathGroup> generalised(const PathGroup& group) {
  const std::string& first =
      group.reference.empty() ? group.candidate.front() : group.reference.front();
  const std::size_t count = std::min(numbers_in(path_parts(first)).size(), kMostNumbers);
  std::vector<std::uint32_t> choices(std::size_t{1} << count);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    choices[i] = static_cast<std::uint32_t>(i);
  }
  std::ranges::stable_sort(choices, [](std::uint32_t left, std::uint32_t right) {
    return std::popcount(left) > std::popcount(right);
  });
  std::vector<PathGroup> patterns;
  for (const std::uint32_t chosen : choices) {
    if (auto pattern = starred(group, chosen)) {
      patterns.push_back(std::move(*pattern));
    }
  }
  return patterns;
}

std::optional<std::vector<std::string>> stars_in(const std::string& pattern,
                                                 const std::string& path) {
  const auto expected = path_parts(pattern);
  const auto parts = path_parts(path);
  std::vector<std::string> stars;
  if (expected.size() != parts.size()) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (expected[i] == "*" && is_number(parts[i])) {
      stars.push_back(parts[i]);
    } else if (expected[i] != parts[i]) {
      return std::nullopt;
    }
  }
  return stars;
}

PathGroup filled(const PathGroup& pattern, const std::vector<std::string>& stars) {
  PathGroup group = pattern;
  for (auto* paths : {&group.reference, &group.candidate}) {
    for (std::string& path : *paths) {
      std::vector<std::string> parts = path_parts(path);
      std::size_t next = 0;
      for (std::string& part : parts) {
        part = part == "*" && next < stars.size() ? stars[next++] : part;
      }
      path = joined(parts);
    }
  }
  return group;
}

bool contradicts(const PathGroup& pattern, const PathGroup& group) {
  return any_pair(pattern, group, [&](const std::string& own, const std::string& path) {
    const auto stars = stars_in(own, path);
    return stars && filled(pattern, *stars) != group;
  });
}

LayerPatterns::LayerPatterns(std::span<const PathGroup> known) {
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (PathGroup& pattern : generalised(known[i])) {
      Support& support =
          patterns_.try_emplace(std::move(pattern), Support{i, 0, false}).first->second;
      ++support.count;
    }
  }
  std::erase_if(patterns_, [](const auto& entry) { return entry.second.count < 2; });
  for (auto& [pattern, support] : patterns_) {
    support.contradicted = std::ranges::any_of(
        known, [&](const PathGroup& group) { return contradicts(pattern, group); });
  }
}

std::optional<LayerPatterns::Prediction> LayerPatterns::predict(Names side,
                                                                const std::string& path) const {
  std::optional<Prediction> found;
  for (const auto& [pattern, support] : patterns_) {
    for (const std::string& own : pattern.of(side)) {
      const auto stars = support.contradicted ? std::nullopt : stars_in(own, path);
      if (!stars) {
        continue;
      }
      PathGroup group = filled(pattern, *stars);
      if (found && found->group != group) {
        return std::nullopt;
      }
      if (!found || found->support < support.count) {
        found = Prediction{std::move(group), support.example, support.count};
      }
    }
  }
  return found;
}

}  // namespace ttrace
