#include "analysis/cli/options/selection_options.h"

#include "analysis/bounds/ledger.h"
#include "analysis/cli/options/command_line.h"
#include "trace/base/kind.h"
#include "trace/base/parse_integer.h"
#include "trace/base/split.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

Kind parse_kind_option(std::string_view word) {
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

// What one word of --require asks for.
void require_word(std::string_view word, Required& required) {
  constexpr std::string_view kAll = "all";
  Texts known(kNotSeenKinds.begin(), kNotSeenKinds.end());
  known.emplace_back(kAll);
  for (std::size_t i = 0; i < kNotSeenKinds.size(); ++i) {
    if (word == kNotSeenKinds[i] || word == kAll) {
      required.kinds.insert(static_cast<NotSeenKind>(i));
    }
  }
  for (const KindTraits& traits : kKindTraits) {
    if (traits.name == word) {
      required.tensors.insert(traits.kind);
      return;
    }
    known.emplace_back(traits.name);
  }
  TTRACE_CHECK(
      std::ranges::find(known, word) != known.end(),
      UsageError,
      fmt::format("--require names '{}', which is neither a kind of tensor nor of what may "
                  "be left out; the nearest is '{}'",
                  word,
                  nearest(std::string(word), known)));
}

void add_ranks(const std::string& option, std::string_view word, std::set<int>& ranks) {
  constexpr int kMostRanks = 1 << 20;
  const std::size_t dash = word.find('-');
  const auto first = parse_number<int>(word.substr(0, dash));
  const auto last = dash == word.npos ? first : parse_number<int>(word.substr(dash + 1));
  TTRACE_CHECK(first && last && *first >= 0 && *last >= *first && *last < kMostRanks,
               UsageError,
               fmt::format("--ranks is '{}'; it must be numbers and ranges like 0,2-3", option));
  for (int rank = *first; rank <= *last; ++rank) {
    ranks.insert(rank);
  }
}

}  // namespace

void add_selection_options(po::options_description& named, StepsOption steps) {
  const auto rules = [](const char* name) { return po::value<Texts>()->value_name(name); };
  named.add_options()("filter",
                      rules("REGEX"),
                      "only tensors whose id contains a match of REGEX, as in TTRACE_FILTER; "
                      "repeatable, one match is enough")(
      "exclude", rules("REGEX"), "no tensors whose id contains a match of REGEX; repeatable");
  if (steps == StepsOption::kSelects) {
    named.add_options()("steps",
                        text_option("FIRST:LAST"),
                        "compare only the steps from FIRST to LAST - 1, or one step");
  }
  named.add_options()("kinds",
                      text_option("K1,K2"),
                      "only these kinds of tensors: output, grad_output, main_grad ...")(
      "ranks",
      text_option("0,2-3"),
      "only tensors that at least one of these ranks recorded; all ranks are still merged");
}

void add_range_options(po::options_description& named) {
  named.add_options()(
      "steps", text_option("FIRST:LAST"), "only the steps from FIRST to LAST - 1, or one step")(
      "ranks", text_option("0,2-3"), "only these ranks");
}

Selection selection_of(const po::variables_map& values, StepsOption steps) {
  SelectionRules rules;
  rules.filters = patterns(values, "filter");
  rules.excludes = patterns(values, "exclude");
  if (const auto text = text_of(values, "steps"); text && steps == StepsOption::kSelects) {
    rules.steps = parse_steps(*text);
  }
  if (const auto text = text_of(values, "kinds")) {
    for (const std::string_view word : split_at(*text, ',')) {
      rules.kinds.insert(parse_kind_option(word));
    }
  }
  if (const auto text = text_of(values, "ranks")) {
    for (const std::string_view word : split_at(*text, ',')) {
      add_ranks(*text, word, rules.ranks);
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
      text_option("FILE"),
      "limits for this program, from `ttrace calibrate`, instead of the shipped ones");
  add_require_option(named);
}

void add_require_option(po::options_description& named) {
  named.add_options()(
      "require",
      po::value<Texts>()->value_name("KINDS"),
      "fail with exit code 2 if something of these kinds was not seen: updates, state, start, "
      "random, parallel, later, values, samples, gradients, or all; or if no tensor of a kind such "
      "as main_grad was judged. Separate several with commas; repeatable");
}

std::vector<std::string> words_to_require(const po::variables_map& values) {
  Texts words;
  Required unused;
  for (const std::string& text : texts(values, "require")) {
    for (const std::string_view word : split_at(text, ',')) {
      require_word(word, unused);
      words.emplace_back(word);
    }
  }
  return words;
}

void read_judging_options(const po::variables_map& values, DiffOptions& options) {
  for (const std::string& text : texts(values, "rtol")) {
    options.tolerance.add_rtol(text);
  }
  for (const std::string& text : texts(values, "atol")) {
    options.tolerance.add_atol(text);
  }
  for (const std::string& word : words_to_require(values)) {
    require_word(word, options.required);
  }
  options.allow_missing = patterns(values, "allow-missing");
  options.allow_failed = patterns(values, "allow-failed");
  if (const auto file = text_of(values, "calibration")) {
    options.calibration = read_calibration(*file);
  }
}

void add_ledger_option(po::options_description& named) {
  named.add_options()(
      "without",
      po::value<Texts>()->value_name("NAME"),
      "judge as if this row of the ledger of limits (docs/figures/ledger.md) did not exist, "
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

}  // namespace ttrace::cli
