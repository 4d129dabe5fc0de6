// Runs a case, reference with noise and candidate, and says whether anything is wrong with it.
//
// Thread-safety: cases in different folders may run at the same time.
#pragma once

#include "fuzz_layouts/case.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>

namespace ttrace::fuzz_layouts {

enum class Judgement : char {
  kClean,
  kNoVerdict,  // a program refused, crashed or hung
  kFinding,    // an alarm
  kTooFar,     // f64: a tensor is further from the reference than the digits of f64 explain
};

[[nodiscard]] std::string_view name_of(Judgement judgement);

// The largest error over bound among the tensors of a kind.
struct NearestParts {
  double slice = 0.0;   // of a row or an index of a dimension, where that is the nearest part
  double group = 0.0;   // of a head or a shard, where that is
  double factor = 0.0;  // of the factor
  // Smallest and largest rho where a golden pass is there and judges it; 0: none.
  double least_rho = 0.0;
  double largest_rho = 0.0;
};
using PartsByKind = std::map<std::string, NearestParts, std::less<>>;

// Adds the tensors of a report.
void add_parts(const nlohmann::json& tensors, PartsByKind& parts);
// Adds one to the other.
void add_rho(const NearestParts& from, NearestParts& to);

struct CaseResult {
  Judgement judgement = Judgement::kClean;
  std::string detail;     // one line; empty for a clean case
  double distance = 0.0;  // largest_distance(), in f64
  double seconds = 0.0;
  PartsByKind parts = {};
};

struct JudgeOptions {
  std::string bin;        // folder of ttrace, ttrace_reference and megatron_mini
  std::string run_ranks;  // script that starts ranks
  std::string base;       // configuration that cases change
  int noise = 5;
  int timeout_s = 120;  // that a pass may take
  bool golden = false;  // with a golden pass, and without forced ones
};

// In f64: the allowed error of a tensor, as a part of max(its norm, 1e-3 x the largest norm of its
// kind).
inline constexpr double kFarInF64 = 1e-10;

// The largest error over max(norm, 1e-3 x largest norm of its kind) among a report's tensors, and
// the tensor's id.
struct Distance {
  double value = 0.0;
  std::string id;
};
[[nodiscard]] Distance largest_distance(const nlohmann::json& tensors);

// `folder` is made; traces and logs stay in it.
[[nodiscard]] CaseResult judge(const Case& layout,
                               const std::string& folder,
                               const JudgeOptions& options);

}  // namespace ttrace::fuzz_layouts
