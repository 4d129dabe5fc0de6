#include "analysis/cli/run/helper_program.h"

#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/process.h"

#include <fstream>
#include <iterator>
#include <sys/wait.h>

namespace ttrace::cli {

HelperOutcome run_helper(const std::string& command,
                         const std::string& folder,
                         const Variables& variables,
                         std::optional<std::chrono::seconds> longest) {
  const std::string log = folder + "/log";
  Program program({command, pass_environment(variables, command), log});
  const auto begin = std::chrono::steady_clock::now();
  std::optional<int> status;
  while (!(status = program.exit_status()) &&
         (!longest || std::chrono::steady_clock::now() - begin < *longest)) {
    wait_or_interrupt(std::chrono::milliseconds(20));
    if (interrupt_signal() != 0) {
      break;
    }
  }
  program.end(std::chrono::seconds(1));
  if (interrupt_signal() != 0) {
    throw Interrupted{interrupt_signal()};
  }
  std::ifstream file(log);
  return {status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0,
          {std::istreambuf_iterator<char>(file), {}}};
}

}  // namespace ttrace::cli
