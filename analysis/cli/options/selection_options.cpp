#include "analysis/cli/options/selection_options.h"

#include "analysis/bounds/ledger.h"
#include "analysis/cli/options/command_line.h"
#include "trace/base/kind.h"

#include <ttrace/error.h>
#include <ttrace/log.h>

#include <fmt/core.h>

#include <charconv>
#include <string_view>

namespace po = boost::program_options;

namespace ttrace::cli {
namespace {

using Texts = std::vector<std::string>;

Texts texts(const po::variables_map& values, const char* option) {
  return values.count(option) == 0 ? Texts() : values[option].as<Texts>();
}

std::vector<IdPattern> patterns(const po::variables_map& values, const char* option) {
  std::vector<IdPattern> result;
  for (const std::string& text : texts(values, option)) {
    result.emplace_back(std::string("--") + option, text);
  }
  return result;
}

// The parts between commas, empty ones included.
Texts split(const std::string& text) {
  Texts parts{""};
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Kind parse_kind_option(const std::string& word) {
  Texts known;
  for (const KindTraits& traits : kKindTraits) {
    if (traits.name == word) {
      return traits.kind;
    }
    known.emplace_back(traits.name);
  }
  TTRACE_THROW(UsageError,
               fmt::format("--kinds names '{}', which is not a kind of tensor; the nearest is '{}'",
                           word,
                           nearest(word, known)));
}

bool read_rank(std::string_view text, int& rank) {
  const char* end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, rank);
  return error == std::errc() && next == end && rank >= 0;
}

void add_ranks(const std::string& option, const std::string& word, std::set<int>& ranks) {
  constexpr int kMostRanks = 1 << 20;
  const std::size_t dash = word.find('-');
  int first = 0;
  bool good = read_rank(std::string_view(word).substr(0, dash), first);
  int last = first;
  if (dash != std::string::npos) {
    good = good && read_rank(std::string_view(word).substr(dash + 1), last);
  }
  TTRACE_CHECK(good && last >= first && last < kMostRanks,
               UsageError,
               fmt::format("--ranks is '{}'; it must be numbers and ranges like 0,2-3", option));
  for (int rank = first; rank <= last; ++rank) {
    ranks.insert(rank);
  }
}

}  // namespace

void add_selection_options(po::options_description& named, StepsOption steps) {
  const auto rules = [](const char* name) { return po::value<Texts>()->value_name(name); };
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  named.add_options()("filter",
                      rules("REGEX"),
                      "only tensors whose id contains a match of REGEX, as in TTRACE_FILTER; "
                      "repeatable, one match is enough")(
      "exclude", rules("REGEX"), "no tensors whose id contains a match of REGEX; repeatable");
  if (steps == StepsOption::kSelects) {
    named.add_options()(
        "steps", text("FIRST:LAST"), "compare only the steps from FIRST to LAST - 1, or one step");
  }
  named.add_options()(
      "kinds", text("K1,K2"), "only these kinds of tensors: output, grad_output, main_grad ...")(
      "ranks",
      text("0,2-3"),
      "only tensors that at least one of these ranks recorded; all ranks are still merged");
}

Selection selection_of(const po::variables_map& values, StepsOption steps) {
  SelectionRules rules;
  rules.filters = patterns(values, "filter");
  rules.excludes = patterns(values, "exclude");
  if (steps == StepsOption::kSelects && values.count("steps") != 0) {
    rules.steps = parse_steps(values["steps"].as<std::string>());
  }
  if (values.count("kinds") != 0) {
    for (const std::string& word : split(values["kinds"].as<std::string>())) {
      rules.kinds.insert(parse_kind_option(word));
    }
  }
  if (values.count("ranks") != 0) {
    const auto& option = values["ranks"].as<std::string>();
    for (const std::string& word : split(option)) {
      add_ranks(option, word, rules.ranks);
    }
  }
  return Selection(std::move(rules));
}

void add_judging_options(po::options_description& named) {
  const auto rules = [](const char* name) { return po::value<Texts>()->value_name(name); };
  named.add_options()(
      "rtol",
      rules("X|REGEX:X"),
      "replace the derived bound by numpy's rule: |c - r| <= atol + rtol * |r| must hold at every "
      "element. X applies to all tensors, REGEX:X to those whose whole id matches REGEX. The first "
      "REGEX that matches decides before X does; repeatable")(
      "atol",
      rules("X|REGEX:X"),
      "set atol of the rule of --rtol. Where only one of the two options applies, the other is 0")(
      "allow-missing",
      rules("REGEX"),
      "list a missing tensor whose id contains a match of REGEX, but do not count it as a "
      "finding; repeatable")(
      "allow-failed",
      rules("REGEX"),
      "list a tensor that is out of bound and whose id contains a match of REGEX, but do not count "
      "it as a finding; repeatable")(
      "calibration",
      po::value<std::string>()->value_name("FILE"),
      "limits for this program, from `ttrace calibrate`, instead of the shipped ones");
}

void read_judging_options(const po::variables_map& values, DiffOptions& options) {
  for (const std::string& text : texts(values, "rtol")) {
    options.tolerance.add_rtol(text);
  }
  for (const std::string& text : texts(values, "atol")) {
    options.tolerance.add_atol(text);
  }
  options.allow_missing = patterns(values, "allow-missing");
  options.allow_failed = patterns(values, "allow-failed");
  if (values.count("calibration") != 0) {
    options.calibration = read_calibration(values["calibration"].as<std::string>());
  }
}

void add_ledger_option(po::options_description& named) {
  named.add_options()(
      "without",
      po::value<Texts>()->value_name("NAME"),
      "judge as if this row of the ledger of limits (docs/ledger.md) did not exist, "
      "to measure what it does; repeatable");
}

Allowances allowances_of(const po::variables_map& values) {
  Allowances allowances;
  for (const std::string& name : texts(values, "without")) {
    const auto found = find_allowance(name);
    if (!found) {
      Texts known;
      for (const LedgerRow& row : ledger()) {
        known.emplace_back(row.name);
      }
      const Texts near = nearest_few(name, known, 3);
      TTRACE_THROW(UsageError,
                   "--without names '",
                   name,
                   "', which is no row of the ledger of limits; the nearest are '",
                   near[0],
                   "', '",
                   near[1],
                   "' and '",
                   near[2],
                   "'");
    }
    allowances.remove(*found);
  }
  return allowances;
}

void warn(const std::vector<std::string>& sentences) {
  for (const std::string& sentence : sentences) {
    log(LogLevel::kWarning, sentence);
  }
}

}  // namespace ttrace::cli
