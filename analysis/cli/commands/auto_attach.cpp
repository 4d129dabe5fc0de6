#include "analysis/cli/commands/auto_attach.h"

#include "analysis/cli/run/process.h"
#include "analysis/cli/run/run_directory.h"

#include <fmt/core.h>

#include <filesystem>

namespace ttrace::cli {
namespace {

constexpr auto kStart = R"py(# Written by `ttrace check --auto`. Python runs it when it starts.
import importlib
import importlib.util
import os
import sys

sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != os.path.dirname(os.path.realpath(__file__))]
own = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize  # the one that this file hides
except ImportError:
    sys.modules["sitecustomize"] = own
package = importlib.util.find_spec("ttrace")
if os.environ.get("TTRACE_PASS") and package is None:
    print(f"ttrace: {sys.executable} has no package ttrace, so --auto finds no model; install it there", file=sys.stderr)
elif os.environ.get("TTRACE_PASS"):
    file = os.path.join(os.path.dirname(package.origin), "auto", "imports.py")
    spec = importlib.util.spec_from_file_location("_ttrace_auto_imports", file)
    imports = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(imports)
    imports.after_import("torch", lambda torch: importlib.import_module("ttrace.auto.watching").begin())
)py";

// `command`, whose Python programs find the start file of `folder`.
std::string with_auto_start(const std::string& command, const std::string& folder) {
  const std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  return fmt::format(
      "export PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} && {}", shell_word(path), command);
}

}  // namespace

void attach_by_itself(CheckOptions& options, const std::string& folder) {
  std::filesystem::create_directories(folder);
  replace_file(folder + "/sitecustomize.py", kStart);
  options.candidate = with_auto_start(options.candidate, folder);
  if (!options.stored) {
    options.reference = with_auto_start(options.reference, folder);
  }
  if (!options.stored || options.rerun_given) {
    options.rerun = with_auto_start(options.rerun, folder);
  }
}

}  // namespace ttrace::cli
