// Kernel factors for a program of one's own, from runs of it that are known to be right, with a
// stated rate of false alarms.
//
// Tensors of one run depend strongly on each other, because an error goes on to all that follows.
// So what is counted is runs: of every statistic (limits.h) a run gives one number, the largest
// factor that one of its checks would have taken. With x_1 ... x_n the logarithms of those of n
// runs, mean x and variance v = sum (x_i - mean)^2 / (n - 1):
//
//   s^2    = ((n - 1) v + 5 * 0.2^2) / (n + 4)
//   factor = max(exp(mean + t s sqrt(1 + 1/n)), 1.1 x the largest of the n, 1)
//
// - t is the quantile of Student's distribution with n + 4 degrees of freedom that the next run
//   exceeds with probability rate / m, m the number of factors that are calibrated. The rates add
//   up to the stated one at most (Bonferroni), however the statistics depend on each other.
// - 0.2 with the weight of 5 runs is what is known beforehand: logarithms of largest Q scatter by
//   0.13 to 0.20 (measured in BF16 on a pre-norm GPT, several layouts and batches), with no heavy
//   upper tail. With 20 runs the runs themselves decide; with two or three the factors are wide.
// - A run in which a statistic is 0 is left out of its fit. A statistic that is 0 in all runs keeps
//   its shipped factor.
//
// What the runs alone show, without any fit: if k of n runs raise an alarm, the rate lies in the
// interval of Clopper and Pearson with 95 % confidence; where none does, below 1 - 0.05^(1/n).
//
// A run that raises an alarm under the shipped factors says most about what a program needs. It is
// taken where the user vouches that it is right, and where a factor can excuse what was found.
//
// Sources: prediction limit for one further normal observation: Hahn and Meeker, Statistical
// Intervals (1991), 4.7; with what is known beforehand, Gelman et al., Bayesian Data Analysis, 3.3.
// Bound without an event: Clopper and Pearson, Biometrika 26 (1934).
//
// Thread-safety: plain values and free functions without shared state.
#pragma once

#include "analysis/bounds/limits.h"
#include "trace/file/manifest.h"

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace ttrace {

struct Report;

// Fewer leave the stated rate to the fit.
inline constexpr std::size_t kFewRuns = 20;

// The largest value of every statistic in one run, those of 0 left out.
using RunMaxima = std::map<Statistic, double>;
[[nodiscard]] RunMaxima run_maxima(const Report& report);

// One run that is known to be right.
struct CleanRun {
  std::string name;  // for complaints
  std::string precision;
  int noise_passes = 0;
  Section layout;    // of the candidate
  std::string seed;  // of its data; empty where its program does not say
  RunMaxima maxima;
  bool alarms = false;  // under the shipped limits
};

// Whether the user says that a run is right although it raises an alarm.
enum class Vouched : std::uint8_t { kNo, kYes };

// Throws UsageError that names the run where it has a finding or an undecided verdict, was not
// judged as a whole, has no noise passes or two precisions. Of a run that is vouched for a finding
// is an error only where no limit can excuse it. `report` was made with the shipped limits.
[[nodiscard]] CleanRun clean_run(const Report& report,
                                 const std::string& name,
                                 Vouched vouched = Vouched::kNo);

struct CalibratedLimit {
  Statistic statistic = Statistic::kOfReference;
  std::size_t runs = 0;  // in which the statistic is above 0
  double largest = 0.0;  // over them
  double limit = 0.0;
};

struct CalibrationRun {
  Section layout;
  std::string seed;
};

struct Calibration {
  std::string source;     // the file it was read from, for complaints
  std::string precision;  // of all its runs
  int noise_passes = 0;   // the fewest of a run
  std::vector<CalibrationRun> runs;
  double rate = 0.0;  // of runs that alarm falsely, as asked for
  std::vector<CalibratedLimit> table;
  Vouched vouched = Vouched::kNo;
  std::size_t alarms_shipped = 0;  // runs that raise an alarm under the shipped limits
  std::size_t alarms = 0;          // under these

  // Largest rate of false alarms that as many clean runs leave possible, with 95 % confidence.
  [[nodiscard]] double rate_bound() const;
  [[nodiscard]] Limits limits(const Allowances& allowances = {}) const;
};

// Rates that `alarms` of `runs` leave possible with 95 % confidence. Requires: runs above 0.
struct RateInterval {
  double from = 0.0;
  double to = 1.0;
};
[[nodiscard]] RateInterval rate_interval(std::size_t alarms, std::size_t runs);

// The smallest factor that is ever given: chance alone reaches its limits.
inline constexpr double kLeastFactor = 1.0;

// The limit of one statistic that `share` of the runs may exceed. Requires: values above 0, at
// least one.
[[nodiscard]] double calibrated_limit(std::span<const double> maxima, double share, double floor);

// Throws UsageError that names two runs where their precisions differ, or where nothing differs
// from the reference in any run. Leaves open how many runs raise an alarm under the new limits.
// Requires: at least one run, 0 < rate < 1.
[[nodiscard]] Calibration calibrate(std::span<const CleanRun> runs,
                                    double rate,
                                    Vouched vouched = Vouched::kNo);

void write_calibration(std::ostream& out, const Calibration& calibration);
// Throws FormatError that names the file and what is wrong with it.
[[nodiscard]] Calibration read_calibration(const std::string& file);

// Throws UsageError where a calibration is for another precision than the traces'.
void require_precision(const Calibration& calibration,
                       const Manifest& reference,
                       const Manifest& candidate);

// Says in the report what the calibration promises, and which limits it has nothing for.
void note_calibration(const Calibration& calibration, Report& report);

}  // namespace ttrace
