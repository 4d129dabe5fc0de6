#include "analysis/cli/options/pass_limits.h"

#include "analysis/cli/options/command_line.h"

namespace po = boost::program_options;

namespace ttrace::cli {

void add_pass_limit_options(po::options_description& named) {
  named.add_options()("timeout",
                      po::value<double>()->default_value(600.0, "600")->value_name("S"),
                      "longest time of one pass, in seconds")(
      "grace",
      po::value<double>()->default_value(5.0, "5")->value_name("S"),
      "seconds between SIGTERM and SIGKILL when a program has to be ended");
}

void add_repetition_options(po::options_description& named) {
  named.add_options()(
      "jobs",
      po::value<int>()->value_name("N"),
      "repetitions of the reference that run at the same time, within the memory; the default is "
      "the number of cores, or 1 where it ran on an accelerator")(
      "fresh",
      "start the reference's program anew for every pass; without this option passes of a Python "
      "program go on from where the first one had imported ttrace, where that is safe");
}

PassLimits pass_limits_of(const po::variables_map& values) {
  PassLimits limits{.timeout = seconds(values, "timeout"), .grace = seconds(values, "grace")};
  limits.fresh = values.count("fresh") != 0;
  if (values.count("jobs") != 0) {
    limits.jobs = static_cast<std::size_t>(whole_number(values, "jobs", 1));
  }
  return limits;
}

}  // namespace ttrace::cli
