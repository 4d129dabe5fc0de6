#include "trace/file/code_lines.h"

#include "trace/base/parse_integer.h"
#include "trace/file/hdf5_input.h"
#include "trace/file/hdf5_table.h"
#include "trace/file/trace_schema.h"

#include <regex>

namespace ttrace {
namespace {

// With `*` in place of every part that is a number.
std::string without_numbers(const std::string& path) {
  static const std::regex number(R"((^|\.)\d+(?=\.|$))");
  return std::regex_replace(path, number, "$1*");
}

std::string find_in(const Section& lines, const std::string& path) {
  auto found = lines.find(path);
  if (found == lines.end()) {
    found = lines.find(without_numbers(path));
  }
  return found == lines.end() ? "" : found->second;
}

}  // namespace

std::optional<CodePlace> place_in(std::string_view text) {
  text = text.substr(0, text.find(" ("));
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return std::nullopt;
  }
  const auto line = parse_number<std::int64_t>(text.substr(colon + 1));
  return line && *line > 0 ? std::optional(CodePlace{std::string(text.substr(0, colon)), *line})
                           : std::nullopt;
}

void CodeLines::add(CodeRole role, const std::string& path, const std::string& text) {
  Section& lines = role == CodeRole::kSource ? sources : calls;
  const auto [shared, is_new] = lines.emplace(without_numbers(path), text);
  if (!is_new && shared->second != text) {
    lines.emplace(path, text);
  }
}

void CodeLines::add(const CodeLines& other) {
  sources.insert(other.sources.begin(), other.sources.end());
  calls.insert(other.calls.begin(), other.calls.end());
}

std::string CodeLines::source_of(std::string path) const {
  while (true) {
    std::string text = find_in(sources, path);
    const std::size_t dot = path.rfind('.');
    if (!text.empty() || dot == std::string::npos) {
      return text;
    }
    path.resize(dot);
  }
}

std::string CodeLines::call_of(const std::string& path) const {
  return find_in(calls, path);
}

CodeLines read_code(const Hdf5Input& file) {
  CodeLines lines;
  if (!file.has_dataset(kCodeTable)) {
    return lines;
  }
  const Table table(file, kCodeTable, kCodeColumns);
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const auto text = [&](std::size_t column) { return std::string(table.text(row, column)); };
    const std::string source = text(code_column::kSource);
    (source.empty() ? lines.calls : lines.sources)
        .emplace(text(code_column::kPath), source.empty() ? text(code_column::kCall) : source);
  }
  return lines;
}

}  // namespace ttrace
