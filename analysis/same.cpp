#include "analysis/same.h"

#include "analysis/align/differing_keys.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"

#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

namespace ttrace {
namespace {

std::string values_text(const RankFile& first,
                        const Record& one,
                        const RankFile& second,
                        const Record& other) {
  const std::int64_t count = element_count(one.shape);
  std::vector<double> left(static_cast<std::size_t>(count));
  std::vector<double> right(left.size());
  first.require_intact(one);
  second.require_intact(other);
  to_double(one.type, first.bytes(one).data(), count, left.data());
  to_double(other.type, second.bytes(other).data(), count, right.data());
  std::int64_t differ = 0;
  double most = 0.0;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i] && !(std::isnan(left[i]) && std::isnan(right[i]))) {
      ++differ;
      most = std::max(most, std::abs(left[i] - right[i]));
    }
  }
  return differ == 0
             ? "bits of zeros or NaNs differ"
             : fmt::format(
                   "{} of {} elements differ, by at most {}", differ, count, short_number(most));
}

// Empty where both records are equal, bit for bit.
std::string difference(const RankFile& first,
                       const Record& one,
                       const RankFile& second,
                       const Record& other) {
  if (one.shape != other.shape || one.type != other.type) {
    return fmt::format("it is {} {} in the first run, {} {} in the second",
                       name_of(one.type),
                       shape_text(one.shape),
                       name_of(other.type),
                       shape_text(other.shape));
  }
  const bool have_elements = one.keep == Keep::kBytes && other.keep == Keep::kBytes;
  const auto left = first.bytes(one);
  const auto right = second.bytes(other);
  if (one.digest == other.digest &&
      (!have_elements || std::memcmp(left.data(), right.data(), left.size()) == 0)) {
    return "";
  }
  if (!have_elements) {
    return fmt::format("its digest differs, and its norm is {} in the first run, {} in the second",
                       short_number(one.norm),
                       short_number(other.norm));
  }
  return traits_of(one.id.kind).family == KindFamily::kProgram
             ? "its text differs"
             : values_text(first, one, second, other);
}

std::vector<const Record*> in_execution_order(const RankFile& file) {
  std::vector<const Record*> records;
  for (const Record& record : file.records()) {
    records.push_back(&record);
  }
  std::ranges::stable_sort(records, {}, &Record::order);
  return records;
}

// Adds one rank's step to `result`.
void compare(const RankFile& first, const RankFile& second, Sameness& result) {
  std::map<TensorId, const Record*> others;
  for (const Record& record : second.records()) {
    others.emplace(record.id, &record);
  }
  const auto add = [&](const Record& record, std::size_t before, std::string how) {
    result.unequal.push_back(
        {.id = record.id,
         .rank = first.layout().rank,
         .how = std::move(how),
         .before = before,
         .instant = first.began() ? *first.began() + record.time : record.order});
  };
  std::size_t equal = 0;
  bool parted = false;
  for (const Record* record : in_execution_order(first)) {
    ++result.records;
    const auto other = others.find(record->id);
    const std::string how = other == others.end()
                                ? "the second run did not record it"
                                : difference(first, *record, second, *other->second);
    if (other != others.end()) {
      others.erase(other);
    }
    if (!how.empty()) {
      add(*record, equal, how);
      parted = true;
    }
    equal += parted ? 0 : 1;
  }
  std::size_t came_before = 0;  // in the second run
  for (const Record* record : in_execution_order(second)) {
    if (others.contains(record->id)) {
      ++result.records;
      add(*record, std::min(equal, came_before), "the first run did not record it");
    }
    ++came_before;
  }
}

std::vector<std::string> unequal_settings(const Manifest& first, const Manifest& second) {
  std::vector<std::string> sentences;
  for (const auto& [left, right] :
       {std::pair(first.numerics, second.numerics), std::pair(first.versions, second.versions)}) {
    for (const std::string& key : differing_keys(left, right)) {
      sentences.push_back(fmt::format("{} {} in the first run, {} in the second",
                                      key,
                                      value_or(left, key, "unset"),
                                      value_or(right, key, "unset")));
    }
  }
  return sentences;
}

void require_alike(const Trace& first, const Trace& second) {
  const Manifest& one = first.manifest();
  const Manifest& other = second.manifest();
  TTRACE_CHECK(one.world_size == other.world_size && one.steps == other.steps,
               UsageError,
               fmt::format("{} has {} and {}, but {} has {} and {}; two runs of one program in one "
                           "layout, with the same traced steps, can be compared bit for bit",
                           first.directory(),
                           counted(one.world_size, "rank"),
                           counted(one.steps.size(), "step"),
                           second.directory(),
                           counted(other.world_size, "rank"),
                           counted(other.steps.size(), "step")));
}

}  // namespace

Sameness compare_runs(const Trace& first, const Trace& second) {
  require_alike(first, second);
  Sameness result;
  for (std::size_t step = 0; step < first.steps().size(); ++step) {
    const auto& ranks = first.steps()[step].ranks;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      compare(ranks[rank], second.steps()[step].ranks[rank], result);
    }
    if (!result.unequal.empty() && !result.first) {  // a later step follows from an earlier one
      result.first = *std::ranges::min_element(result.unequal, {}, &UnequalRecord::instant);
    }
  }
  result.settings = unequal_settings(first.manifest(), second.manifest());
  return result;
}

std::string why_unequal(Kind kind) {
  switch (kind) {
    case Kind::kData:
      return "the runs got other data; give the loader a seed, or compare steps that read the same "
             "samples";
    case Kind::kParam:
    case Kind::kStart:
      return "the runs start from other parameters; give the initialisation a seed, or load one "
             "checkpoint in both";
    case Kind::kStateBefore:
      return "earlier steps left other states; compare the first step, or begin from one "
             "checkpoint";
    case Kind::kDraw:
      return "the runs drew other random numbers; set the seed of every rank before the step";
    case Kind::kCollectiveOutput:
    case Kind::kReceived:
      return "all that this rank computed is equal, so another rank sent other values, or the "
             "collective adds up in another order";
    default:
      return "all that this rank computed before is equal, so this operator gives other results "
             "from "
             "equal values, unless another rank sent it others; "
             "torch.use_deterministic_algorithms(True) names operators that do";
  }
}

}  // namespace ttrace
