// Where in the program's code that stands which was traced.
//
// Both sections go from the path of a module (or of a scope within one) to a text such as
// "model.py:88 (Attention)". `*` in a path stands for any number; a path without one takes
// precedence.
//
// Thread-safety: plain values.
#pragma once

#include <ttrace/run_description.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

enum class CodeRole : std::uint8_t {
  kSource,  // where a module's own code stands
  kCall,    // where the program calls it
};

// A line of a file; the file is named as the program names it, relative to its folder or not.
struct CodePlace {
  std::string file;
  std::int64_t line = 0;  // from 1

  bool operator==(const CodePlace&) const = default;
};

// Of "model.py:88 (Attention)"; nothing where the text does not begin with a file and a line.
[[nodiscard]] std::optional<CodePlace> place_in(std::string_view text);

struct CodeLines {
  Section sources = {};
  Section calls = {};

  // What is known of a path stays. Paths that differ by numbers alone and have the same text share
  // an entry.
  void add(CodeRole role, const std::string& path, const std::string& text);
  void add(const CodeLines& other);
  [[nodiscard]] bool empty() const { return sources.empty() && calls.empty(); }
  // Of the module with this path, or else of the innermost one around it; empty if nothing is
  // known.
  [[nodiscard]] std::string source_of(std::string path) const;
  // Of this very path; empty if nothing is known.
  [[nodiscard]] std::string call_of(const std::string& path) const;
};

class Hdf5Input;
// Of a rank file; empty if it has none.
[[nodiscard]] CodeLines read_code(const Hdf5Input& file);

}  // namespace ttrace
