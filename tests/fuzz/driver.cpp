// Replays a corpus on a fuzz target and then mutates it, if there is no libFuzzer.
//
//   fuzz_X CORPUS [--runs N] [--seed S]
//
// The inputs run in a forked process that leaves the current one in shared memory, so that a crash,
// an endless loop and a broken property are all the same: a child that does not end well. Its input
// is then made smaller as long as it still fails, printed, and written to fuzz-failure.
#include "property.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr std::size_t kLargest = 4096;  // bytes of an input
constexpr unsigned kSeconds = 10;       // that one input may take
constexpr rlim_t kMemory = rlim_t{8} << 30;

struct Current {
  std::size_t size;
  char bytes[kLargest];
};

Current& current() {
  static auto* const shared = static_cast<Current*>(
      ::mmap(nullptr, sizeof(Current), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

void run_one(const std::string& input) {
  current().size = std::min(input.size(), kLargest);
  std::memcpy(current().bytes, input.data(), current().size);
  ::alarm(kSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), current().size);
  ::alarm(0);
}

// Whether `action` ends normally in a process of its own.
bool ends_well(bool quiet, const std::function<void()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (quiet && std::freopen("/dev/null", "w", stderr) == nullptr) {
      ::_exit(2);
    }
#ifndef __SANITIZE_ADDRESS__  // which reserves terabytes
    const rlimit memory = {kMemory, kMemory};
    ::setrlimit(RLIMIT_AS, &memory);
#endif
    try {
      action();
      std::exit(0);  // removes scratch folders
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fuzz: %s\n", error.what());
    }
    std::exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && !quiet) {
    std::fprintf(
        stderr, "fuzz: ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Removes ever smaller pieces as long as what is left still fails.
std::string shrunk(std::string input) {
  for (std::size_t piece = input.size() / 2; piece > 0; piece /= 2) {
    for (std::size_t at = 0; at + piece <= input.size();) {
      std::string shorter = input;
      shorter.erase(at, piece);
      if (ends_well(true, [&] { run_one(shorter); })) {
        at += piece;
      } else {
        input = shorter;
      }
    }
  }
  return input;
}

void report(const std::string& input) {
  std::fprintf(stderr, "fuzz: smallest input that fails, %zu bytes: \"", input.size());
  for (const char c : input) {
    const auto byte = static_cast<unsigned char>(c);
    std::fprintf(stderr, byte >= 0x20 && byte < 0x7f && c != '"' ? "%c" : "\\x%02x", byte);
  }
  std::fprintf(stderr, "\"\n");
  std::ofstream("fuzz-failure", std::ios::binary) << input;
}

std::vector<std::string> read_corpus(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().string());
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> corpus;
  for (const std::string& name : names) {
    std::ifstream in(name, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  Mutator(const std::vector<std::string>& corpus, unsigned seed)
      : corpus_(corpus), generator_(seed) {}

  std::string next() {
    std::string input = corpus_[below(corpus_.size())];
    for (std::size_t i = 0; i <= below(6); ++i) {
      mutate(input);
    }
    return input.substr(0, kLargest);
  }

 private:
  std::size_t below(std::size_t end) { return generator_() % std::max<std::size_t>(end, 1); }

  // A piece of some input of the corpus.
  std::string piece() {
    const std::string& other = corpus_[below(corpus_.size())];
    const std::size_t at = below(other.size());
    return other.substr(at, 1 + below(12));
  }

  void mutate(std::string& input) {
    static const std::vector<std::string> kNumbers = {
        "0", "1", "9223372036854775807", "9223372036854775808", "2147483648", "-1", "4294967296"};
    const std::size_t at = below(input.size() + 1);
    const std::size_t length = std::min(1 + below(8), input.size() - at);
    switch (below(7)) {
      case 0:
        if (length > 0) {
          input[at] = static_cast<char>(static_cast<unsigned char>(input[at]) ^ (1U << below(8)));
        }
        break;
      case 1:
        if (length > 0) {
          input[at] = static_cast<char>(below(256));
        }
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, input.substr(at, length));
        break;
      case 4:
        input.insert(at, kNumbers[below(kNumbers.size())]);
        break;
      case 5:
        input.replace(at, length, piece());
        break;
      default:
        input.insert(at, piece());
        break;
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937 generator_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto option = [&](const char* name, unsigned otherwise) {
    const auto found = std::find(words.begin(), words.end(), name);
    return found == words.end() || found + 1 == words.end()
               ? otherwise
               : static_cast<unsigned>(std::stoul(*(found + 1)));
  };
  const std::vector<std::string> corpus = words.empty() ? words : read_corpus(words.front());
  if (corpus.empty()) {
    std::fprintf(stderr, "usage: %s CORPUS [--runs N] [--seed S]; CORPUS holds files\n", argv[0]);
    return 2;
  }
  const unsigned runs = option("--runs", 10000);
  Mutator mutator(corpus, option("--seed", 1));
  current().size = 0;  // mapped before the fork, or it would not be shared
  const bool well = ends_well(false, [&] {
    for (const std::string& input : corpus) {
      run_one(input);
    }
    for (unsigned run = 0; run < runs; ++run) {
      run_one(mutator.next());
    }
  });
  if (!well) {
    report(shrunk(std::string(current().bytes, current().size)));
    return 1;
  }
  std::printf(
      "%zu inputs of the corpus and %u mutations: as they should be\n", corpus.size(), runs);
  return 0;
}
