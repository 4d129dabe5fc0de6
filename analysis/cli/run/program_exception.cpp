#include "analysis/cli/run/program_exception.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <regex>
#include <vector>

namespace ttrace::cli {
namespace {

struct Line {
  std::string rank;
  std::string text;
};

// Without the marks of ranks that torch ("[rank1]: ") and mpirun ("[1,0]<stderr>:") put first.
Line unmarked(std::string_view text) {
  static const std::regex mark(R"(^\[(?:rank(\d+)\]: ?|\d+,(\d+)\]<std(?:err|out)>:))");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_search(text.begin(), text.end(), found, mark)) {
    return {"", std::string(text)};
  }
  return {found[1].matched ? found[1].str() : found[2].str(), found.suffix().str()};
}

std::vector<Line> lines_of(std::string_view log) {
  std::vector<Line> lines;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size());
    lines.push_back(unmarked(log.substr(0, end)));
    log.remove_prefix(std::min(end + 1, log.size()));
  }
  return lines;
}

// Reads the lines of one rank from a given one on; lines of other ranks may lie between them.
class RankLines {
 public:
  RankLines(const std::vector<Line>& lines, std::size_t first)
      : lines_(lines), at_(first), rank_(lines[first].rank) {}

  [[nodiscard]] const std::string* text() const {
    return at_ < lines_.size() ? &lines_[at_].text : nullptr;
  }
  void next() {
    do {
      ++at_;
    } while (at_ < lines_.size() && lines_[at_].rank != rank_);
  }

 private:
  const std::vector<Line>& lines_;
  std::size_t at_;
  const std::string& rank_;
};

constexpr std::string_view kTraceback = "Traceback (most recent call last):";

bool is_indented(const std::string& text) {
  return text.empty() || text.front() == ' ' || text.front() == '\t';
}

bool is_of_a_library(const std::string& path) {
  constexpr std::array<std::string_view, 4> kPlaces = {
      "/site-packages/", "/dist-packages/", "/lib/python", "<frozen "};
  return std::ranges::any_of(kPlaces,
                             [&](std::string_view place) { return path.find(place) != path.npos; });
}

// The innermost call of a traceback that is no library's, else the innermost of all.
class Innermost {
 public:
  void read(const std::string& line) {
    static const std::regex frame(R"re(^\s+File "([^"]+)", line (\d+), in (.+)$)re");
    std::smatch found;
    if (!std::regex_match(line, found, frame)) {
      return;
    }
    const bool own = !is_of_a_library(found[1].str());
    if (own || !has_own_) {
      where_ = fmt::format("{}:{}, in {}", found[1].str(), found[2].str(), found[3].str());
    }
    has_own_ = has_own_ || own;
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  std::string where_;
  bool has_own_ = false;
};

// Behind a traceback's head: its calls, and the line that says what was raised.
ProgramException read_traceback(RankLines& lines) {
  Innermost innermost;
  lines.next();
  while (lines.text() != nullptr && is_indented(*lines.text())) {
    innermost.read(*lines.text());
    lines.next();
  }
  ProgramException found{lines.text() != nullptr ? *lines.text() : "", innermost.where(), ""};
  if (lines.text() != nullptr) {
    lines.next();
  }
  return found;
}

// Moves to the head of the traceback of an exception that followed from the last one.
bool goes_on(RankLines& lines) {
  const auto follows = [](const std::string& text) {
    return text.starts_with("The above exception was the direct cause") ||
           text.starts_with("During handling of the above exception");
  };
  while (lines.text() != nullptr && lines.text()->empty()) {
    lines.next();
  }
  if (lines.text() == nullptr || !follows(*lines.text())) {
    return false;
  }
  while (lines.text() != nullptr && *lines.text() != kTraceback) {
    lines.next();
  }
  return lines.text() != nullptr;
}

bool is_a_launchers(const ProgramException& exception) {
  return exception.text.starts_with("torch.distributed.elastic.") ||
         exception.text.starts_with("subprocess.CalledProcessError");
}

std::optional<ProgramException> of_python(RankLines lines) {
  ProgramException last = read_traceback(lines);
  while (goes_on(lines)) {
    last = read_traceback(lines);
  }
  return last.text.empty() || is_a_launchers(last) ? std::nullopt : std::optional(last);
}

std::optional<ProgramException> of_cpp(RankLines lines) {
  static const std::regex thrown(R"(^terminate called after throwing an instance of '(.+)'$)");
  std::smatch type;
  if (!std::regex_match(*lines.text(), type, thrown)) {
    return std::nullopt;
  }
  lines.next();
  constexpr std::string_view kWhat = "  what():  ";
  const bool says = lines.text() != nullptr && lines.text()->starts_with(kWhat);
  return ProgramException{
      says ? fmt::format("{}: {}", type[1].str(), lines.text()->substr(kWhat.size()))
           : type[1].str(),
      "",
      ""};
}

}  // namespace

std::optional<ProgramException> first_exception(std::string_view log) {
  const std::vector<Line> lines = lines_of(log);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const RankLines from(lines, i);
    auto found = lines[i].text == kTraceback ? of_python(from) : of_cpp(from);
    if (found) {
      found->rank = lines[i].rank;
      return found;
    }
  }
  return std::nullopt;
}

std::optional<SilentEnd> first_silent_end(std::string_view log) {
  static const std::regex torchruns(R"(failed \(exitcode: -(\d+)\) local_rank: (\d+))");
  static const std::regex mpiruns(R"(process rank (\d+) with PID .*exited on signal (\d+))");
  for (const Line& line : lines_of(log)) {
    std::smatch found;
    if (std::regex_search(line.text, found, torchruns)) {
      return SilentEnd{found[2].str(), std::stoi(found[1].str())};
    }
    if (std::regex_search(line.text, found, mpiruns)) {
      return SilentEnd{found[1].str(), std::stoi(found[2].str())};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace::cli
