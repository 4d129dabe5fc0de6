// Parsing of arguments for all commands, and errors that name the nearest valid word.
//
// Thread-safety: free functions without shared state.
#pragma once

#include "analysis/cli/options/manual.h"

#include <boost/program_options/value_semantic.hpp>
#include <boost/program_options/variables_map.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace::cli {

using Arguments = std::vector<std::string>;

// The word of `known` that takes the fewest single-letter edits (Levenshtein distance); the first
// of several. Requires: `known` is not empty.
[[nodiscard]] std::string nearest(std::string_view word, const std::vector<std::string>& known);

// The `count` nearest ones, nearest first.
[[nodiscard]] std::vector<std::string> nearest_few(std::string_view word,
                                                   const std::vector<std::string>& known,
                                                   std::size_t count);

// Words without an option name are collected under this name.
inline constexpr auto kWords = "words";

// Parses the arguments of the command that `manual` describes. Throws UsageError that names the
// nearest option, or the option whose value is wrong.
[[nodiscard]] boost::program_options::variables_map parse(const Arguments& arguments,
                                                          const Manual& manual);

// The value of an option that takes a text, which help calls `name`.
[[nodiscard]] boost::program_options::typed_value<std::string>* text_option(
    const std::string& name);
// The text that an option was given; nothing if it was not given.
[[nodiscard]] std::optional<std::string> text_of(
    const boost::program_options::variables_map& values, const std::string& option);

// The value of a whole-number option. Throws UsageError if it is below `minimum`.
[[nodiscard]] int whole_number(const boost::program_options::variables_map& values,
                               const std::string& option,
                               int minimum);
// The value of an option in seconds. Throws UsageError if it is negative, above four
// months or no number.
[[nodiscard]] double seconds(const boost::program_options::variables_map& values,
                             const std::string& option);

}  // namespace ttrace::cli
