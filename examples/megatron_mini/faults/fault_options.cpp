#include "fault_options.h"

#include "../error.h"
#include "catalogue.h"

#include <boost/program_options.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>

namespace megatron_mini::faults {

namespace {

namespace po = boost::program_options;

template <class T>
std::optional<T> given(const po::variables_map& values, const char* name) {
  return values.contains(name) ? std::optional<T>(values[name].as<T>()) : std::nullopt;
}

Mutant read_mutant(const po::variables_map& values) {
  const auto name = given<std::string>(values, "mutant");
  const auto size = given<double>(values, "mutant-size");
  require<UsageError>(name.has_value() == size.has_value(),
                      "--mutant NAME and --mutant-size X must be given together");
  return name ? Mutant::named(*name, *size, values["mutant-layer"].as<std::int64_t>()) : Mutant();
}

}  // namespace

void add_options(po::options_description& description) {
  auto add = description.add_options();
  add("bug", po::value<std::string>()->value_name("NAME"), "plant this silent bug");
  add("bug-size", po::value<double>()->value_name("X"), "magnitude of the bug, if it has one");
  add("list-bugs", po::bool_switch(), "print one line of JSON per bug");
  add("mutant", po::value<std::string>()->value_name("NAME"), "plant an error of a chosen size");
  add("mutant-size", po::value<double>()->value_name("X"), "size of the mutant's error");
  add("mutant-layer",
      po::value<std::int64_t>()->value_name("N")->default_value(0),
      "layer of the mutant, counted from 0");
}

Choice read_choice(const po::variables_map& values) {
  Choice choice;
  choice.bug_size = given<double>(values, "bug-size");
  if (const auto name = given<std::string>(values, "bug")) {
    const BugEntry bug = find_bug(MEGATRON_MINI_BUGS, *name, choice.bug_size);
    choice.bug = bug.name;
    choice.bug_needs = bug.needs;
  }
  require<UsageError>(!choice.bug.empty() || !choice.bug_size, "--bug-size needs --bug NAME");
  choice.mutant = read_mutant(values);
  require<UsageError>(choice.bug.empty() || !values.contains("mutant"),
                      "--bug ",
                      choice.bug,
                      " and --mutant cannot be planted in one run; leave one of them out");
  return choice;
}

std::string bug_list() {
  std::string lines;
  for (const auto& bug : load_bugs(MEGATRON_MINI_BUGS)) {
    if (bug.pending) {
      continue;
    }
    const nlohmann::ordered_json line = {{"name", bug.name},
                                         {"source", bug.source},
                                         {"needs", bug.needs},
                                         {"expected", bug.expected},
                                         {"hint", bug.hint}};
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace megatron_mini::faults
