#include "support/experiment_output.h"

#include <ttrace/error.h>

#include <fstream>

namespace ttrace::testing {

void write_if_asked(const std::string& path, const std::string& text) {
  if (path.empty()) {
    return;
  }
  std::ofstream file(path);
  file << text;
  TTRACE_CHECK(file.flush().good(), UsageError, "cannot write ", path);
}

std::string command_text(const std::string& verb, int argc, char** argv) {
  std::string command = "./dev " + verb;
  for (int i = 1; i < argc; ++i) {
    command += " ";
    command += argv[i];
  }
  return command;
}

}  // namespace ttrace::testing
