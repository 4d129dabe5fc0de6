// Truncated and corrupted files: `ttrace diff` refuses them in one sentence or, where only values
// are hit, judges what it reads; it neither crashes nor hangs.
#include "stored_traces.h"
#include "trace/file/trace_reader.h"

#include <cstddef>
#include <functional>
#include <ostream>
#include <random>
#include <span>

namespace ttrace::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Files in which `ttrace diff` reads every byte that does not belong to a tensor.
enum class Victim { kCandidateRank, kReferenceRank, kNoiseTable, kManifest };

void PrintTo(Victim victim, std::ostream* out) {
  constexpr const char* kNames[] = {"CandidateRank", "ReferenceRank", "NoiseTable", "Manifest"};
  *out << kNames[static_cast<std::size_t>(victim)];
}

class Damaged : public StoredTraces, public ::testing::WithParamInterface<Victim> {
 protected:
  [[nodiscard]] std::string victim() const {
    switch (GetParam()) {
      case Victim::kCandidateRank:
        return rank_file();
      case Victim::kReferenceRank:
        return reference() + "/step000000/rank00000.h5";
      case Victim::kNoiseTable:
        return noise_table();
      case Victim::kManifest:
        break;
    }
    return manifest();
  }

  // The name that a refusal must contain. A flipped letter of the manifest may turn it into another
  // model's.
  [[nodiscard]] std::string named() const {
    return GetParam() == Victim::kManifest ? "" : victim();
  }

  // Runs diff with `bytes` in the victim's place.
  [[nodiscard]] ProcessResult diff_with(const std::string& bytes) const {
    write_bytes(victim(), bytes);
    return diff();
  }
};

using Truncated = Damaged;

TEST_P(Truncated, IsRefusedAtEveryFourKib) {
  const std::string whole = read_text(victim());
  for (std::size_t length = 0; length < whole.size(); length += 4096) {
    SCOPED_TRACE(length);
    expect_refused(diff_with(whole.substr(0, length)), {victim()});
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(Truncated, IsRefusedAtOddSizes) {
  const std::string whole = read_text(victim());
  std::mt19937 generator(3);
  std::vector<std::size_t> lengths{1, 7, 8, 9, 47, 95, 96, 97, 511, whole.size() - 2};
  for (int i = 0; i < 40; ++i) {
    lengths.push_back(generator() % (whole.size() - 1));
  }
  for (const std::size_t length : lengths) {
    SCOPED_TRACE(length);
    if (length + 1 < whole.size()) {  // a manifest without its last newline is whole
      expect_refused(diff_with(whole.substr(0, length)), {victim()});
    }
    ASSERT_FALSE(HasFailure());
  }
}

const auto kEveryVictim = ::testing::Values(
    Victim::kCandidateRank, Victim::kReferenceRank, Victim::kNoiseTable, Victim::kManifest);
INSTANTIATE_TEST_SUITE_P(Files, Truncated, kEveryVictim, ::testing::PrintToStringParamName());

// The allowed results of a flipped bit: a verdict on other values, or a refusal that names the
// file.
void expect_judged_or_refused(const ProcessResult& result, const std::string& file) {
  if (result.exit_code == 2 || result.signal != 0 || result.timed_out) {
    expect_refused(result, {file});
  } else {
    EXPECT_THAT(result.exit_code, AnyOf(0, 1));
    EXPECT_THAT(result.out, AnyOf(HasSubstr("CLEAN"), HasSubstr("DIVERGED")));
  }
}

// Flips one bit of [first, last) at a time; returns how many of the trials were refused.
int flip_and_count(const std::string& whole,
                   std::size_t first,
                   std::size_t last,
                   const std::function<ProcessResult(const std::string&)>& diff,
                   const std::string& file) {
  std::mt19937 generator(17);
  int refused = 0;
  for (int trial = 0; trial < 150 && !::testing::Test::HasFailure(); ++trial) {
    std::string flipped = whole;
    const std::size_t place = first + generator() % (last - first);
    const unsigned bit = generator() % 8;
    flipped[place] = static_cast<char>(static_cast<unsigned char>(flipped[place]) ^ (1U << bit));
    SCOPED_TRACE("byte " + std::to_string(place) + ", bit " + std::to_string(bit));
    const ProcessResult result = diff(flipped);
    expect_judged_or_refused(result, file);
    refused += result.exit_code == 2 ? 1 : 0;
  }
  return refused;
}

using FlippedBits = Damaged;

TEST_P(FlippedBits, InTheHeaderNeverCrash) {
  const std::string whole = read_text(victim());
  const std::size_t header = std::min<std::size_t>(whole.size(), 2048);
  EXPECT_GT(
      flip_and_count(
          whole, 0, header, [&](const std::string& bytes) { return diff_with(bytes); }, named()),
      15);
}

TEST_P(FlippedBits, InTheLastKibNeverCrash) {
  // There lies the table of a rank's file and of noise; HDF5 does not guard it.
  const std::string whole = read_text(victim());
  const std::size_t first = whole.size() - std::min<std::size_t>(whole.size(), 1024);
  flip_and_count(
      whole,
      first,
      whole.size(),
      [&](const std::string& bytes) { return diff_with(bytes); },
      named());
}

INSTANTIATE_TEST_SUITE_P(Files, FlippedBits, kEveryVictim, ::testing::PrintToStringParamName());

using FlippedValues = StoredTraces;

// A value that the disk changed was judged like one that the program computed: the report named a
// divergence, or nothing where the bit was a low one.
TEST_F(FlippedValues, AreNoValuesOfTheProgram) {
  const std::string whole = read_text(rank_file());
  const RankFile read(rank_file());
  const Record& record = read.records().front();
  const std::span<const std::byte> bytes = read.bytes(record);
  const std::string value(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t place = whole.find(value);
  ASSERT_NE(place, std::string::npos);
  std::string flipped = whole;
  flipped[place] = static_cast<char>(static_cast<unsigned char>(flipped[place]) ^ 1U);
  write_bytes(rank_file(), flipped);
  expect_refused(diff(), {rank_file(), "the bytes of " + to_string(record.id) + " have changed"});
}

TEST_F(FlippedValues, AnywhereInTheTensorsAreJudged) {
  const std::string whole = read_text(rank_file());
  const auto diff_with = [&](const std::string& bytes) {
    write_bytes(rank_file(), bytes);
    return diff();
  };
  flip_and_count(whole, 2048, whole.size() - 2048, diff_with, rank_file());
}

// A file cut short while it was mapped ended ttrace by SIGBUS.
TEST_F(FlippedValues, FileCutShortWhileItIsReadNeverCrashes) {
  const std::string whole = read_text(rank_file());
  int mapped = 0;  // while it was cut short; not asserted, since that is chance
  for (int i = 0; i < 40; ++i) {
    write_bytes(rank_file(), whole);
    RunningProcess running(options({"diff", reference(), candidate()}));
    // Found in the maps it is open, and by chance read or not yet.
    const std::string maps = "/proc/" + std::to_string(running.pid()) + "/maps";
    while (fs::exists(maps) && read_text(maps).find("rank00001.h5") == std::string::npos &&
           !read_text(maps).empty()) {
    }
    fs::resize_file(rank_file(), 100);
    const ProcessResult result = running.wait();
    EXPECT_EQ(result.signal, 0);
    if (result.exit_code == 2) {
      expect_refused(result, {});
      mapped += result.err.find("was cut short") == std::string::npos ? 0 : 1;
    } else {
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
  }
  RecordProperty("mapped", mapped);
}

}  // namespace
}  // namespace ttrace::testing
