#include "analysis/guess/map_text.h"

#include "analysis/findings/wording.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

namespace ttrace {
namespace {

constexpr std::size_t kMostOptions = 4;

std::string with_slot(const std::string& path, const EntryWords& words) {
  return words.slot ? path + "/" + std::to_string(*words.slot) : path;
}

// One side of an entry in YAML.
std::string side_text(const MapEntry& entry, Names side) {
  const auto& paths = entry.paths.of(side);
  if (paths.empty()) {
    return "~";
  }
  const auto quoted = paths | std::views::transform([&](const std::string& path) {
                        return '"' + with_slot(path, entry.words) + '"';
                      });
  const std::string text = fmt::format("{}", fmt::join(quoted, ", "));
  return paths.size() == 1 ? text : "[" + text + "]";
}

std::string dims_text(const EntryDims& dims) {
  return fmt::format("{{kinds: {}, reference: \"{}\", candidate: \"{}\"}}",
                     dims.kinds,
                     dims.how.reference,
                     dims.how.candidate);
}

std::string comment_of(const MapEntry& entry) {
  std::string text = fmt::format("  # {}, {}: {}",
                                 entry.words.open ? "OPEN" : name_of(entry.certainty),
                                 counted(entry.tensors, "tensor"),
                                 fmt::join(entry.evidence, "; "));
  if (entry.error) {
    text.append(fmt::format(" (up to {} of the norm)", short_number(*entry.error)));
  }
  if (entry.words.open) {
    text.append(entry.options.empty() ? ". Write ~ if the other program does not have it"
                                      : fmt::format(". It may be {}, or ~", options_text(entry)));
  }
  return text + "\n";
}

std::string entry_text(const MapEntry& entry) {
  std::string text = fmt::format("  - {{reference: {}, candidate: {}",
                                 side_text(entry, Names::kReference),
                                 side_text(entry, Names::kCandidate));
  if (!entry.words.kinds.empty()) {
    text.append(", kinds: " + entry.words.kinds);
  }
  if (!entry.words.ratio.empty()) {
    text.append(fmt::format(
        ", groups: {}, ratio: [{}]", entry.words.groups, fmt::join(entry.words.ratio, ", ")));
  }
  if (!entry.words.dims.empty()) {
    text.append(fmt::format(", dims: [{}]",
                            fmt::join(entry.words.dims | std::views::transform(dims_text), ", ")));
  }
  return text + "}\n";
}

}  // namespace

std::string paths_text(const MapEntry& entry, Names side) {
  const auto slots = entry.paths.of(side) | std::views::transform([&](const std::string& path) {
                       return with_slot(path, entry.words);
                     });
  return slots.empty() ? "~" : fmt::format("{}", fmt::join(slots, " + "));
}

std::string options_text(const MapEntry& entry) {
  std::string text;
  const std::size_t shown = std::min(entry.options.size(), kMostOptions);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool is_last = i + 1 == entry.options.size();
    text.append(i == 0 ? "" : is_last ? " or " : ", ").append(entry.options[i]);
  }
  if (entry.options.size() > shown) {
    text.append(
        fmt::format(" or one of {} more (--format json lists all)", entry.options.size() - shown));
  }
  return text;
}

std::string map_text(const MapEntries& entries, const std::string& heading) {
  std::string text = heading;
  text.append("tensors:").append(entries.tensors.empty() ? " []\n" : "\n");
  for (const MapEntry& entry : entries.tensors) {
    text.append(comment_of(entry)).append(entry_text(entry));
  }
  text.append(entries.dims.empty() ? "" : "dims:\n");
  for (const EntryDims& dims : entries.dims) {
    text.append("  - " + dims_text(dims) + "\n");
  }
  return text;
}

}  // namespace ttrace
