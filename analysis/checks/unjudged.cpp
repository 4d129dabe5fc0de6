#include "analysis/checks/unjudged.h"

#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/file/noise_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace ttrace {
namespace {

bool is_compared_by_size(const TensorVerdict& tensor) {
  return tensor.comparison && tensor.comparison->elements > 0 &&
         (tensor.find(Question::kWhole) != nullptr || tensor.find(Question::kTolerance) != nullptr);
}

bool is_nowhere_finite(const TensorVerdict& tensor) {
  return is_compared_by_size(tensor) && tensor.comparison->nonfinite == tensor.comparison->elements;
}

// Whether the bound of the whole tensor lets an error pass that is as large as the tensor.
bool passes_anything(const TensorVerdict& tensor) {
  const Check* const whole = tensor.find(Question::kWhole);
  return whole != nullptr && tensor.comparison && tensor.comparison->different > 0 &&
         !(whole->bound <= tensor.comparison->reference_norm);
}

bool is_judged_otherwise(const TensorVerdict& tensor) {
  const Check* const operators = tensor.find(Question::kOperator);
  return (operators != nullptr && is_sharp(*operators)) ||
         tensor.find(Question::kTooCoarse) != nullptr;
}

std::string first_of(const TensorVerdict* tensor) {
  return "; the first is " + to_string(tensor->id);
}

// How many have the excuse and are not judged, and the first of them.
struct Unjudged {
  std::size_t count = 0;
  const TensorVerdict* first = nullptr;
};

Unjudged unjudged(const Report& report, Excuse excuse) {
  Unjudged result;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == Status::kNotJudged && tensor.has(excuse)) {
      result.first = result.count++ == 0 ? &tensor : result.first;
    }
  }
  return result;
}

}  // namespace

Excuses says_nothing(std::span<const TensorVerdict> tensors) {
  Excuses excuses(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (is_nowhere_finite(tensors[i])) {
      excuses[i] = Excused{Excuse::kNotFinite, ""};
    } else if (passes_anything(tensors[i]) && !is_judged_otherwise(tensors[i])) {
      excuses[i] = Excused{Excuse::kNoBound, ""};
    }
  }
  return excuses;
}

bool noise_exceeds_tensors(const Trace& reference) {
  constexpr double kMuch = 0.5;
  std::map<TensorId, double> norms;
  for (const RankFile& file : reference.files()) {
    for (const Record& record : file.records()) {
      const KindFamily family = family_of(record.id.kind);
      if (family == KindFamily::kData || family == KindFamily::kActivation ||
          family == KindFamily::kLoss) {
        norms.emplace(record.id, record.norm);
      }
    }
  }
  bool exceeds = false;
  for_each_noise_pass(reference.directory(), [&](const NoisePass& pass) {
    exceeds = exceeds || std::ranges::any_of(pass.rows, [&](const NoiseRow& row) {
                const auto norm = norms.find(row.id);
                return norm != norms.end() && norm->second > 0.0 &&
                       std::sqrt(row.sum_squared) > kMuch * norm->second;
              });
  });
  return exceeds;
}

void state_unjudged_values(Report& report) {
  if (!report.other_data.empty()) {
    return;  // which says why
  }
  const auto state = [&](const std::string& sentence) {
    report.not_seen.push_back({NotSeenKind::kValues, std::nullopt, sentence});
  };
  const std::string all = counted(report.tensors.size(), "tensor");
  const Unjudged infinite = unjudged(report, Excuse::kNotFinite);
  report.not_finite = infinite.count;
  if (infinite.count > 0) {
    state(fmt::format("{} of {} {} not finite on both sides and {} not compared{}",
                      infinite.count,
                      all,
                      infinite.count == 1 ? "is" : "are",
                      infinite.count == 1 ? "was" : "were",
                      first_of(infinite.first)));
  }
  const auto has_nan = [](const TensorVerdict& tensor) {
    return tensor.comparison && tensor.comparison->nan > 0 && !tensor.has(Excuse::kNotFinite);
  };
  const auto nan = std::ranges::find_if(report.tensors, has_nan);
  if (nan != report.tensors.end()) {
    const auto count = std::ranges::count_if(report.tensors, has_nan);
    state(
        fmt::format("{} of {} {} NaN at the same places on both sides; only the other elements "
                    "were compared{}",
                    count,
                    all,
                    count == 1 ? "has" : "have",
                    first_of(&*nan)));
  }
  const Unjudged loose = unjudged(report, Excuse::kNoBound);
  if (loose.count > 0) {
    state(
        fmt::format("{} of {} {} not judged, because round-off explains an error as large as the "
                    "tensor itself{}",
                    loose.count,
                    all,
                    loose.count == 1 ? "is" : "are",
                    first_of(loose.first)));
  }
}

}  // namespace ttrace
