// Passes of a Python program that do not start anew: the first one leaves a process, the keeper, as
// it was when it had imported the package ttrace, and later ones go on from there
// (python/ttrace/_keeper.py says where that is safe, and what it answers).
//
// Thread-safety: main thread only.
#pragma once

#include "analysis/cli/run/process.h"
#include "analysis/cli/run/temporary_folder.h"

#include <map>
#include <memory>
#include <string>

namespace ttrace::cli {

// A place for a keeper, which ends with it.
class KeeperPlace {
 public:
  KeeperPlace();
  ~KeeperPlace();
  KeeperPlace(const KeeperPlace&) = delete;  // ends one keeper
  KeeperPlace& operator=(const KeeperPlace&) = delete;

  // The variable TTRACE_KEEPER of passes that may leave a keeper here: "PID:FOLDER", the process
  // with which it ends, and where it is asked.
  [[nodiscard]] const std::string& variable() const { return variable_; }

 private:
  TemporaryFolder folder_;
  std::string variable_;
};

// A process that goes on from the keeper with these variables of TTrace; its output goes to `log`.
// Null where there is no keeper.
[[nodiscard]] std::unique_ptr<Running> go_on_from_keeper(
    const std::string& variable,
    const std::map<std::string, std::string>& variables,
    const std::string& log);

}  // namespace ttrace::cli
