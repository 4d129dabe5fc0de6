#include "analysis/cli/run/passes.h"

#include "analysis/cli/run/interrupt.h"
#include "analysis/cli/run/keeper.h"
#include "analysis/cli/run/process.h"
#include "analysis/cli/run/program_exception.h"
#include "analysis/cli/run/progress.h"
#include "analysis/cli/run/run_directory.h"
#include "trace/base/pattern.h"
#include "trace/file/attendance.h"
#include "trace/file/trace_reader.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string_view>
#include <unistd.h>

namespace fs = std::filesystem;

namespace ttrace::cli {
namespace {

constexpr std::chrono::milliseconds kPollPasses{20};
// A program whose last step was traced ends by itself about now; mpirun takes a second longer when
// it is asked to.
constexpr std::chrono::milliseconds kOwnEnd{500};
constexpr std::size_t kLogLines = 15;
constexpr std::size_t kLogBytes = 65536;          // quoted from the end
constexpr std::size_t kExceptionBytes = 4194304;  // read from the end to find an exception
constexpr std::size_t kQuotedFailures = 3;
constexpr std::size_t kQuotedBytes = 2000;

constexpr const char* kLaterFile = "/later.txt";  // next to the manifest

constexpr std::string_view kForwarded = "OMPI_MCA_mca_base_env_list=";

bool is_users(std::string_view name) {
  return std::ranges::find(kUsersVariables, name) != kUsersVariables.end();
}

bool is_kept(std::string_view name) {
  return is_users(name) ||
         std::ranges::none_of(std::array{"TTRACE_", "OMPI_COMM_", "PMIX_"},
                              [name](const char* removed) { return name.starts_with(removed); });
}

std::vector<std::string> failed_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code gone;
  for (fs::recursive_directory_iterator entry(folder, gone), last; !gone && entry != last;
       entry.increment(gone)) {
    if (entry->path().extension() == ".failed") {
      files.push_back(entry->path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Text of another program for a terminal: no control characters.
std::string printable(std::string text) {
  std::erase_if(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
  });
  return text;
}

std::string end_of(const std::string& path, std::size_t limit) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::streamoff>(file.tellg());
  file.seekg(std::max<std::streamoff>(0, size - static_cast<std::streamoff>(limit)));
  return printable({std::istreambuf_iterator<char>(file), {}});
}

std::string indented(const std::string& text, std::size_t last_lines) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  std::string result;
  for (std::size_t i = lines.size() > last_lines ? lines.size() - last_lines : 0; i < lines.size();
       ++i) {
    result += "\n    " + lines[i];
  }
  return result;
}

// Without what torchrun prints of the processes that failed, which fills the end of a log and hides
// what these processes said. A log that has nothing else stays as it is.
std::string without_launchers_report(const std::string& text) {
  const std::size_t found = text.find("torch/distributed/elastic/");
  const std::size_t line = found == std::string::npos ? found : text.rfind('\n', found);
  return line == std::string::npos ? text : text.substr(0, line);
}

std::string quote_log(const std::string& log) {
  const std::string tail = indented(without_launchers_report(end_of(log, kLogBytes)), kLogLines);
  return fmt::format("\n  its log {} {}{}", log, tail.empty() ? "is empty" : "ends with:", tail);
}

std::string quote_failures(const std::string& folder) {
  const std::vector<std::string> files = failed_files(folder);
  std::string text;
  for (std::size_t i = 0; i < std::min(files.size(), kQuotedFailures); ++i) {
    const std::string reason = indented(end_of(files[i], kQuotedBytes), kLogLines);
    text +=
        fmt::format("\n  {}{}{}",
                    files[i],
                    reason.empty() ? " is empty; perhaps no space was left on its disk" : " says:",
                    reason);
  }
  if (files.size() > kQuotedFailures) {
    text += fmt::format("\n  and {} more .failed files", files.size() - kQuotedFailures);
  }
  return text;
}

// "\n  rank 1 was ended by signal 9 (Killed)": torchrun's report, which says it, is cut off.
std::string quote_silent_end(const std::string& text) {
  const auto ended = first_silent_end(text);
  return ended ? fmt::format("\n  rank {} {}", ended->rank, describe_exit(ended->signal)) : "";
}

// "\n  rank 1 raised ValueError: 30 is not divisible by 4\n    at train.py:88, in build"
std::string quote_first_failure(const std::string& log) {
  const std::string text = end_of(log, kExceptionBytes);
  const auto exception = first_exception(text);
  if (!exception) {
    return quote_silent_end(text);
  }
  return fmt::format("\n  {} raised {}{}",
                     exception->rank.empty() ? "it" : "rank " + exception->rank,
                     exception->text,
                     exception->where.empty() ? "" : "\n    at " + exception->where);
}

// What is missing in a program that ended as if all were well. Nothing where it does not tell.
std::optional<std::string> what_is_missing(const Pass& pass) {
  if (!fs::exists(pass.trace + "/manifest.json") && !has_claims(pass.trace)) {
    return pass.unattached;
  }
  const auto seen = read_attendance(pass.trace);
  if (!seen) {
    return std::nullopt;
  }
  if (!seen->first || !seen->last) {
    return fmt::format(
        "the program attached, but no `tracer.step({})` ran; begin every iteration "
        "of the training loop with `tracer.step(iteration)`",
        seen->awaited);
  }
  const std::string ran = *seen->first == *seen->last
                              ? fmt::format("step {}", *seen->first)
                              : fmt::format("steps {} to {}", *seen->first, *seen->last);
  return fmt::format(
      "the program ran {}, never {}; pass --steps with steps that it runs, or let "
      "it run longer",
      ran,
      seen->awaited);
}

std::string cause_of_end(const Pass& pass, int wait_status) {
  const auto missing = wait_status == 0 ? what_is_missing(pass) : std::nullopt;
  return missing
             ? *missing
             : fmt::format("the program {} before {}", describe_exit(wait_status), pass.awaited);
}

[[noreturn]] void fail(const Pass& pass, const std::string& cause) {
  std::string text = fmt::format("the {} pass failed: {}{}{}{}",
                                 pass.name,
                                 cause,
                                 quote_first_failure(pass.log),
                                 quote_failures(pass.trace),
                                 quote_log(pass.log));
  if (!pass.remedy.empty()) {
    text += "\n  " + pass.remedy;
  }
  TTRACE_THROW(UsageError, text);
}

void wait_for_own_end(Running& program) {
  const auto limit = std::chrono::steady_clock::now() + kOwnEnd;
  while (!program.exit_status() && interrupt_signal() == 0 &&
         std::chrono::steady_clock::now() < limit) {
    wait_or_interrupt(kPollPasses);
  }
}

// Of passes that make a trace. What fails after the program was ended nobody sees.
void remember_later_failure(const Pass& pass, const std::optional<int>& status) {
  const auto kind = pass.variables.find("TTRACE_PASS");
  const bool makes_side =
      kind != pass.variables.end() && (kind->second == "reference" || kind->second == "candidate");
  if (makes_side && status.value_or(0) != 0) {
    replace_file(pass.trace + kLaterFile,
                 fmt::format("its program {} after the traced steps; {} says why\n",
                             describe_exit(*status),
                             pass.log));
  }
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000.0));
}

}  // namespace

std::vector<std::string> pass_environment(const Variables& variables, const std::string& command) {
  std::vector<std::string> result;
  std::string forwarded;
  static const Pattern mpirun_x("mpirun's -x", R"((^|\s)-x\s)");
  const bool excluded = mpirun_x.found_in(command);
  const auto forward = [&](std::string_view name) {
    if (!excluded) {
      forwarded.append(forwarded.empty() ? "" : ";").append(name);
    }
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with(kForwarded)) {
      const std::string_view theirs = text.substr(kForwarded.size());
      forwarded = forwarded.empty() ? theirs : std::string(theirs) + ";" + forwarded;
    } else if (const std::string_view name = text.substr(0, text.find('=')); is_kept(name)) {
      result.emplace_back(text);
      if (is_users(name)) {
        forward(name);
      }
    }
  }
  for (const auto& [name, value] : variables) {
    result.push_back(std::string(name).append("=").append(value));
    forward(name);
  }
  if (!forwarded.empty()) {
    result.push_back(std::string(kForwarded) + forwarded);
  }
  return result;
}

namespace {

// Names one run of a program, so that nothing that another one left is taken for its own.
std::string new_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Why the complete files are not those of the pass with this token; empty where they are. A program
// whose launcher did not forward the token bears none.
std::string foreign_files(const Pass& pass, const std::string& token) {
  const std::string found = pass.token();
  return found.empty() || found == token
             ? ""
             : fmt::format(
                   "another pass than the one that this check started wrote {}, so two "
                   "programs write to one folder; choose another folder with -o, or end "
                   "the other program",
                   pass.trace);
}

}  // namespace

std::optional<std::string> failed_later(const std::string& trace) {
  std::ifstream file(trace + kLaterFile);
  std::string sentence;
  return std::getline(file, sentence) ? std::optional(sentence) : std::nullopt;
}

void forget_failure(const Pass& pass) {
  if (!is_complete(pass.trace)) {
    fs::remove_all(pass.trace);
    return;
  }
  for (const std::string& file : failed_files(pass.trace)) {
    fs::remove(file);
  }
}

namespace {

// What a process that goes on from a keeper has of TTrace's variables.
Variables with_users(Variables variables) {
  for (const std::string_view name : kUsersVariables) {
    if (const char* const value = std::getenv(std::string(name).c_str()); value != nullptr) {
      variables.emplace(name, value);
    }
  }
  return variables;
}

// The program of a pass: from its start, or from where the keeper is.
struct Started {
  std::unique_ptr<Running> program;
  bool is_anew = true;
};

Started start(const Pass& pass, Variables variables) {
  if (!pass.keeper.empty()) {
    if (auto kept = go_on_from_keeper(pass.keeper, with_users(variables), pass.log)) {
      return {std::move(kept), false};
    }
    variables["TTRACE_KEEPER"] = pass.keeper;
  }
  return {std::make_unique<Program>(Launch{.command = pass.command,
                                           .environment = pass_environment(variables, pass.command),
                                           .log = pass.log})};
}

// Runs a program that has been started for a pass, whose files must bear `token`. Returns why it
// failed; empty where it did not.
std::string finish(const Pass& pass,
                   const PassLimits& limits,
                   const std::string& token,
                   Running& program,
                   const std::function<double()>& elapsed,
                   const std::function<void(double)>& tick) {
  std::string cause;
  while (cause.empty() && interrupt_signal() == 0) {
    // Asked before the files are looked at: those of a program that has ended are final.
    const auto status = program.exit_status();
    if (pass.complete()) {
      cause = foreign_files(pass, token);
      wait_for_own_end(program);
      remember_later_failure(pass, program.exit_status());
      break;
    }
    if (!failed_files(pass.trace).empty()) {
      cause = "the program could not finish the trace";
    } else if (status) {
      cause = cause_of_end(pass, *status);
    } else if (elapsed() > limits.timeout) {
      cause = fmt::format(
          "it took longer than {} (--timeout), so ttrace ended it; its log shows how far it came",
          seconds_text(limits.timeout));
    } else {
      tick(elapsed());
      wait_or_interrupt(kPollPasses);
    }
  }
  return cause;
}

}  // namespace

double run_pass(const Pass& pass,
                const PassLimits& limits,
                const std::function<void(double)>& tick) {
  using Clock = std::chrono::steady_clock;
  const auto start_time = Clock::now();
  const auto elapsed = [start_time] {
    return std::chrono::duration<double>(Clock::now() - start_time).count();
  };
  const std::string token = new_token();
  Variables variables = pass.variables;
  variables["TTRACE_RUN"] = token;
  const Started started = start(pass, variables);
  const std::string cause = finish(pass, limits, token, *started.program, elapsed, tick);
  started.program->end(milliseconds(limits.grace));
  if (const int signal = interrupt_signal(); signal != 0) {
    throw Interrupted{signal};
  }
  if (!cause.empty() && !started.is_anew) {
    forget_failure(pass);
    Pass anew = pass;
    anew.keeper.clear();
    return run_pass(anew, limits, tick);
  }
  if (!cause.empty()) {
    fail(pass, cause);
  }
  return elapsed();
}

}  // namespace ttrace::cli
