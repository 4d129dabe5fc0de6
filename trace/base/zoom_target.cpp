#include "trace/base/zoom_target.h"

#include "trace/base/parse_integer.h"

#include <ttrace/error.h>

#include <algorithm>
#include <optional>

namespace ttrace {
namespace {

// Up to the next `separator`, which is consumed.
std::string_view take(std::string_view& rest, char separator) {
  const std::size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace

std::string to_string(const ZoomTarget& target) {
  std::string text = "s" + std::to_string(target.step);
  if (target.microbatch != kNoMicrobatch) {
    text += "/m" + std::to_string(target.microbatch);
  }
  char separator = '/';
  for (const std::string& module : target.modules) {
    text += separator + module;
    separator = ',';
  }
  return text;
}

ZoomTarget parse_zoom_target(std::string_view text) {
  ZoomTarget target;
  std::string_view rest = text;
  const auto step = parse_integer_after('s', take(rest, '/'));
  std::string_view modules = rest;
  if (const auto microbatch = parse_integer_after('m', take(rest, '/'))) {
    target.microbatch = *microbatch;
    modules = rest;
  }
  while (!modules.empty()) {
    target.modules.emplace_back(take(modules, ','));
  }
  TTRACE_CHECK(
      step && !target.modules.empty() && std::ranges::all_of(target.modules, is_canonical_path),
      UsageError,
      "'",
      text,
      "' names no module to zoom into; write s<step>[/m<microbatch>]/<path>[,<path>]");
  target.step = *step;
  return target;
}

std::string operator_path(std::string_view module, std::string_view name) {
  const std::size_t colons = name.rfind("::");
  std::string base(name.substr(colons == std::string_view::npos ? 0 : colons + 2));
  while (base.size() > 1 && base.back() == '_') {
    base.pop_back();
  }
  for (char& c : base) {
    c = is_canonical_path({&c, 1}) ? c : '_';
  }
  return std::string(module) + "." + base;
}

}  // namespace ttrace
