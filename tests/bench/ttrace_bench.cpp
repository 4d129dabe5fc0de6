// Benchmarks as ratios within one run, so that figures of different machines can be compared.
#include "bench/figures.h"

#include <ttrace/error.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace ttrace::bench {
namespace {

namespace po = boost::program_options;

std::vector<Group> groups() {
  return {comparison_group(), files_group(), steps_group(), passes_group()};
}

void print_help(const po::options_description& options) {
  std::cout << "usage: ttrace_bench [--json FILE] [--only GROUP]...\n\n" << options << '\n';
  for (const Group& group : groups()) {
    std::cout << group.name << ":\n";
    for (const Key& key : group.keys) {
      std::cout << "  " << key.name << (*key.goal == '\0' ? "" : ", ") << key.goal << "\n      "
                << key.meaning << '\n';
    }
  }
}

std::vector<Group> chosen(const std::vector<std::string>& names) {
  std::vector<Group> result;
  std::string known;
  for (const Group& group : groups()) {
    known += (known.empty() ? "" : ", ") + std::string(group.name);
    if (names.empty() || std::find(names.begin(), names.end(), group.name) != names.end()) {
      result.push_back(group);
    }
  }
  TTRACE_CHECK(names.empty() || result.size() == names.size(),
               UsageError,
               "--only takes each of these at most once: ",
               known);
  return result;
}

nlohmann::ordered_json measure(const std::vector<Group>& chosen_groups) {
  nlohmann::ordered_json figures = nlohmann::ordered_json::object();
  for (const Group& group : chosen_groups) {
    std::cerr << "measuring " << group.name << '\n';
    group.run(figures);
    for (const Key& key : group.keys) {
      TTRACE_CHECK(figures.contains(key.name), InternalError, key.name, " was not measured");
    }
  }
  return figures;
}

int run(int argc, char** argv) {
  std::vector<std::string> only;
  std::string json_path;
  po::options_description options("options");
  options.add_options()("help", "print this text")(
      "json", po::value(&json_path)->value_name("FILE"), "also write the figures to FILE")(
      "only", po::value(&only)->value_name("GROUP"), "measure only this group; repeatable");
  po::variables_map values;
  po::store(po::parse_command_line(argc, argv, options), values);
  po::notify(values);
  if (values.contains("help")) {
    print_help(options);
    return 0;
  }
  const std::string text = measure(chosen(only)).dump(2);
  std::cout << text << '\n';
  if (!json_path.empty()) {
    std::ofstream file(json_path);
    file << text << '\n';
    TTRACE_CHECK(file.flush().good(), UsageError, "cannot write ", json_path);
  }
  return 0;
}

}  // namespace
}  // namespace ttrace::bench

int main(int argc, char** argv) {
  try {
    return ttrace::bench::run(argc, argv);
  } catch (const ttrace::Error& error) {
    std::cerr << "ttrace_bench: " << error.message() << '\n';
  } catch (const boost::program_options::error& error) {
    std::cerr << "ttrace_bench: " << error.what() << "; see --help\n";
  }
  return 2;
}
