#include "analysis/cli/options/command_line.h"

#include "trace/base/edit_distance.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

constexpr double kLongest = 1e7;  // seconds: four months

[[noreturn]] void refuse_unknown(const std::string& option, const po::options_description& named) {
  std::vector<std::string> known;
  for (const auto& description : named.options()) {
    known.push_back("--" + description->long_name());
  }
  TTRACE_THROW(UsageError,
               fmt::format("unknown option '{}'; the nearest is '{}' (put a command that has its "
                           "own options in quotes)",
                           option,
                           nearest(option, known)));
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  return nearest_few(word, known, 1).front();
}

std::vector<std::string> nearest_few(std::string_view word,
                                     const std::vector<std::string>& known,
                                     std::size_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> by_distance;  // distance, position
  for (std::size_t i = 0; i < known.size(); ++i) {
    by_distance.emplace_back(edit_distance(word, known[i]), i);
  }
  std::ranges::sort(by_distance);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < std::min(count, known.size()); ++i) {
    found.push_back(known[by_distance[i].second]);
  }
  return found;
}

po::variables_map parse(const Arguments& arguments, const Manual& manual) {
  po::options_description all;
  all.add(manual.options);
  po::positional_options_description positional;
  if (manual.takes_words) {
    all.add_options()(kWords, po::value<std::vector<std::string>>());
    positional.add(kWords, -1);
  }
  // Abbreviations would change their meaning with every option that is added.
  const int style = po::command_line_style::default_style & ~po::command_line_style::allow_guessing;
  po::variables_map values;
  try {
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional).style(style).run(),
        values);
    po::notify(values);
  } catch (const po::unknown_option& error) {
    refuse_unknown(error.get_option_name(), manual.options);
  } catch (const po::too_many_positional_options_error&) {
    TTRACE_THROW(UsageError,
                 "this command takes only options; put a command with spaces in quotes: "
                 "--candidate \"program --config file\"");
  } catch (const po::error& error) {
    TTRACE_THROW(UsageError, error.what());
  }
  return values;
}

po::typed_value<std::string>* text_option(const std::string& name) {
  return po::value<std::string>()->value_name(name);
}

std::optional<std::string> text_of(const po::variables_map& values, const std::string& option) {
  return values.count(option) == 0 ? std::nullopt : std::optional(values[option].as<std::string>());
}

int whole_number(const po::variables_map& values, const std::string& option, int minimum) {
  const int value = values[option].as<int>();
  TTRACE_CHECK(value >= minimum,
               UsageError,
               fmt::format("--{} is {}; it must be at least {}", option, value, minimum));
  return value;
}

double seconds(const po::variables_map& values, const std::string& option) {
  const double value = values[option].as<double>();
  TTRACE_CHECK(
      value >= 0 && value <= kLongest,
      UsageError,
      fmt::format(
          "--{} is {}; it must be a number of seconds from 0 to {:g}", option, value, kLongest));
  return value;
}

}  // namespace ttrace::cli
