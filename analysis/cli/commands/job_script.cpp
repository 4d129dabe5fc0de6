#include "analysis/cli/commands/job_script.h"

#include "analysis/cli/run/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <ostream>

namespace ttrace::cli {
namespace {

constexpr auto kHead = R"sh(#
# Under SLURM, submit every job with these dependencies:
#
#   first=$(sbatch --parsable jobs.sh reference)
#   sbatch --dependency=afterok:$first jobs.sh noise-1
#
# The command of a pass starts its ranks by itself. srun hands them the TTRACE_* variables of the job if it
# exports everything, which is its default; write `srun --export=ALL` where a site or SLURM_EXPORT_ENV has
# another one. Open MPI's mpirun gets them in OMPI_MCA_mca_base_env_list.
#
# A pass lasts until its program ends, so let the program end after the last traced step. No time limit but
# the queue's applies.
set -eu
)sh";

constexpr auto kVariables = R"sh(mkdir -p "$run/logs"

# Of TTRACE_*, only what says how to trace comes from outside.
for name in ${!TTRACE_@}; do
  case $name in
)sh";

constexpr auto kHelpers = R"sh(    *) unset "$name" ;;
  esac
done

# pass NAME COMMAND: runs the command of a pass under the exported variables.
pass() {
  case " $2 " in
    *' -x '*) ;; # mpirun's own way to forward variables excludes the other one
    *)
      local names
      names=$(IFS=';' && echo "${!TTRACE_*}")
      export OMPI_MCA_mca_base_env_list="${OMPI_MCA_mca_base_env_list:+$OMPI_MCA_mca_base_env_list;}$names"
      ;;
  esac
  echo "job $1 runs; its output goes to $run/logs/$1.log" >&2
  /bin/sh -c "$2" > "$run/logs/$1.log" 2>&1 || {
    echo "the command of job $1 failed; its log ends with:" >&2
    tail -n 15 "$run/logs/$1.log" >&2
    return 2
  }
}

# left_out NAME: a job that failed costs sharpness, not the comparison.
left_out() {
  echo "the comparison continues without job $1" >&2
}

# precision FOLDER, setting FOLDER KEY: what a trace's manifest says.
precision() {
  sed -n 's/^  "precision": "\(.*\)",\{0,1\}$/\1/p' "$1/manifest.json"
}
setting() {
  sed -n '/^  "numerics"/,/^  }/s/^    "'"$2"'": "\(.*\)",\{0,1\}$/\1/p' "$1/manifest.json"
}

# Whether a reference ran on an accelerator without deterministic algorithms.
needs_self_check() {
  local device
  device=$(setting "$1" device)
  [ -n "$device" ] && [ "$device" != cpu ] && [ "$(setting "$1" deterministic_algorithms)" != on ]
}

# Whether the candidate chose other experts than the reference, or drew other random numbers.
flips() {
  "$ttrace" diff "$run/reference" "$run/candidate" --kinds routing,draw,data,input --format json 2> /dev/null |
    grep -q -e '"routing": *{"tokens": *[0-9]*, *"flips": *[1-9]' \
      -e 'random numbers that the reference could not follow' \
      -e 'draw random numbers for their samples'
}
)sh";

std::string names_of(const std::vector<Job>& jobs) {
  std::vector<std::string> names;
  for (const Job& job : jobs) {
    names.push_back(job.name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

void print_head(std::ostream& out, const JobScript& script) {
  out << "#!/bin/bash\n"
         "# The passes of one `ttrace check` as jobs. Without arguments this script runs all of "
         "them here, one after\n"
         "# the other; with names of jobs, only those. A job needs the files of the jobs that it "
         "comes after:\n"
         "#\n";
  std::size_t width = 0;
  for (const Job& job : script.jobs) {
    width = std::max(width, job.name.size());
  }
  for (const Job& job : script.jobs) {
    out << fmt::format("#   {:<{}}  after: {}\n",
                       job.name,
                       width,
                       job.after.empty() ? "-" : fmt::format("{}", fmt::join(job.after, ", ")));
  }
  out << kHead
      << fmt::format("cd {}\nrun={}\nttrace={}\n",
                     shell_word(std::filesystem::current_path().string()),
                     shell_word(script.folder),
                     shell_word(script.program));
}

}  // namespace

std::vector<std::string> lines_of(const Pass& pass, const std::string& name) {
  std::vector<std::string> lines;
  for (const auto& [variable, value] : pass.variables) {
    lines.push_back(fmt::format("export {}={}", variable, shell_word(value)));
  }
  lines.push_back(fmt::format("pass {} {}", name, shell_word(pass.command)));
  return lines;
}

void print_script(std::ostream& out, const JobScript& script) {
  print_head(out, script);
  out << kVariables << fmt::format("    {}) ;;\n", fmt::join(kUsersVariables, " | ")) << kHelpers;
  for (const Job& job : script.jobs) {
    out << fmt::format("\njob-{}() (\n", job.name);
    for (const std::string& line : job.lines) {
      out << "  " << line << '\n';
    }
    out << ")\n";
  }
  out << fmt::format(R"sh(
jobs='{}'
if [ $# -eq 0 ]; then
  set -- $jobs
fi
for name in "$@"; do
  if ! declare -F "job-$name" > /dev/null; then
    echo "there is no job $name; the jobs are $jobs" >&2
    exit 2
  fi
  "job-$name"
done
)sh",
                     names_of(script.jobs));
}

}  // namespace ttrace::cli
