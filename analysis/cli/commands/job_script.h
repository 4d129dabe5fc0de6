// A shell script of jobs that a user may run one by one: each is a function of its own.
//
// Thread-safety: plain values.
#pragma once

#include "analysis/cli/run/passes.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace ttrace::cli {

struct Job {
  std::string name;                // "noise-1"
  std::vector<std::string> after;  // jobs that must have ended
  std::vector<std::string> lines;  // of bash, one command each
};

struct JobScript {
  std::string folder;   // of the run, as `ttrace diff` is given it
  std::string program;  // path of `ttrace`
  std::vector<Job> jobs;
};

// Lines that run a pass under its variables and keep what it prints in logs/NAME.log.
[[nodiscard]] std::vector<std::string> lines_of(const Pass& pass, const std::string& name);

void print_script(std::ostream& out, const JobScript& script);

}  // namespace ttrace::cli
