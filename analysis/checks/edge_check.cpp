#include "analysis/checks/edge_check.h"

#include "analysis/align/index_by_id.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/align/module_path.h"
#include "analysis/align/producers.h"
#include "analysis/checks/structure.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/file/edge.h"
#include "trace/merge/merge.h"
#include "trace/sums/statistics.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace ttrace {
namespace {

// What a stage received is the output that another one sent; see SelfCheck.
TensorId as_output(TensorId id) {
  id.kind = id.kind == Kind::kReceived ? Kind::kOutput : id.kind;
  return id;
}

// Returns nothing if the parts of one side form no whole tensor, or if the two have different
// shapes.
std::optional<Statistics> between(std::span<const Shard> source, std::span<const Shard> taken) {
  return statistics_where_alike(merge(source), merge(taken));
}

bool are_addends(std::span<const Shard> shards) {
  return std::ranges::any_of(
      shards, [](const Shard& shard) { return shard.record->placement.partial_count > 1; });
}

// The reference has one value under two names. Of the candidate's, one is addends and the other
// their sum, which is rounded: no copy, so that other checks judge the two and what takes them.
bool a_sum_lies_between(const Match& source, const Match& taken) {
  if (!are_addends(source.candidate) && !are_addends(taken.candidate)) {
    return false;
  }
  const auto statistics = between(source.reference, taken.reference);
  return statistics && statistics->different == 0;
}

std::string difference_text(const Statistics& statistics) {
  return fmt::format(
      "{} differ, with an error of {} of its norm",
      statistics.is_estimate
          ? "its digest and what was taken"
          : fmt::format("{} of {}", statistics.different, counted(statistics.count, "element")),
      short_number(statistics.relative_error()));
}

// The source of the bound.
std::string source_text(const TensorId& producer) {
  return "exact (" + to_string(producer) + ")";
}

class EdgeCheck {
 public:
  EdgeCheck(const Trace& candidate,
            std::span<const Match> matches,
            std::vector<TensorVerdict>& tensors,
            bool one_program)
      : tensors_(tensors),
        one_program_(one_program),
        vocabulary_(candidate.manifest().roles),
        matches_(matches),
        by_id_(matches),
        judged_(tensors),
        sources_(candidate) {}

  void look_at(const Edge& edge) {
    TensorVerdict* const consumer = judged_.find(edge.consumer);
    if (consumer == nullptr && judged_.find(edge.producer) == nullptr) {
      return;
    }
    ++coverage_.edges;
    const Match* const source = by_id_.find(edge.producer);
    if (source == nullptr || source->candidate.empty()) {
      return;  // reported as missing
    }
    const bool seen =
        consumer == nullptr ? judge_sources(edge, *source) : judge_copy(edge, *source, *consumer);
    coverage_.checked += seen ? 1 : 0;
  }

  // Inputs that the reference recorded, because no module returned their memory there, and that are
  // another module's output in the candidate.
  void look_at_aliases() {
    for (const auto& [consumer, taken] : sources_) {
      TensorVerdict* const verdict = judged_.find(consumer);
      const Match* const own = by_id_.find(consumer);
      if (verdict != nullptr && own != nullptr && !own->reference.empty()) {
        judge_alias(*own, taken, *verdict);
      }
    }
  }

  // The last call: what is added moves the verdicts.
  EdgeCoverage finish() {
    tensors_.insert(tensors_.end(), added_.begin(), added_.end());
    const auto earlier = [](const TensorVerdict& left, const TensorVerdict& right) {
      return std::tie(left.id.step, left.order) < std::tie(right.id.step, right.order);
    };
    // Verdicts are large, and sorting moves each a dozen times: only where any was added out of
    // turn.
    if (!std::is_sorted(tensors_.begin(), tensors_.end(), earlier)) {
      std::stable_sort(tensors_.begin(), tensors_.end(), earlier);
    }
    return coverage_;
  }

 private:
  // The candidate recorded the input, because no module returned this memory.
  bool judge_copy(const Edge& edge, const Match& source, TensorVerdict& verdict) const {
    const Match* const own = by_id_.find(edge.consumer);
    if (own == nullptr || own->candidate.empty() || verdict.is_in_reference ||
        !verdict.fails(Question::kPresence) || verdict.find(Question::kSource) != nullptr ||
        verdict.find(Question::kRecompute) != nullptr) {
      return false;
    }
    const auto statistics = between(source.candidate, own->candidate);
    if (!statistics) {
      return false;
    }
    verdict.excuse(Excuse::kCopied);
    Check check = passed(Question::kSource, source_text(edge.producer));
    if (statistics->different > 0) {
      const bool again = first_forward_took(edge);
      check = failed(again ? Question::kRecompute : Question::kSource,
                     fmt::format("it is not equal to {} {} in the same run: {}",
                                 again ? "what the first forward took," : "its source",
                                 to_string(edge.producer),
                                 difference_text(*statistics)));
      check.original = edge.producer;
      check.source = source_text(edge.producer);
    }
    verdict.add(std::move(check));
    return true;
  }

  // Whether the module runs again in backward, and took the producer's very memory in its first
  // forward: then nothing is wrong between the two modules, but the second forward begins with
  // something else.
  [[nodiscard]] bool first_forward_took(const Edge& edge) const {
    TensorId first = edge.consumer;
    first.recompute = false;
    const std::map<int, TensorId>& taken = sources_.of(first);
    return edge.consumer.recompute && !taken.empty() &&
           std::ranges::all_of(taken, [&](const auto& source) {
             return as_output(source.second) == as_output(edge.producer);
           });
  }

  // The output answers for the input, if the reference's input is a copy of the reference's output.
  void judge_alias(const Match& own,
                   const std::map<int, TensorId>& taken,
                   TensorVerdict& verdict) const {
    const TensorId producer = as_output(taken.begin()->second);
    const bool is_one = std::all_of(taken.begin(), taken.end(), [&](const auto& source) {
      return as_output(source.second) == producer;
    });
    const Match* const source = by_id_.find(producer);
    if (!own.candidate.empty() || !verdict.fails(Question::kPresence) || !is_one ||
        source == nullptr) {
      return;
    }
    const auto statistics = between(source->reference, own.reference);
    if (!statistics || statistics->different > 0) {
      return;  // the candidate leaves out what the reference does in between
    }
    verdict.excuse(Excuse::kCopied);
    verdict.add(passed(Question::kSource, source_text(producer)));
  }

  // All ranks took what a module returned, perhaps another one than in the reference.
  bool judge_sources(const Edge& edge, const Match& source) {
    const std::map<int, TensorId>& taken = sources_.of(edge.consumer);
    if (taken.empty()) {
      return false;
    }
    for (const auto& [rank, producer] : taken) {
      const TensorId from = as_output(producer);
      if (from == edge.producer) {
        continue;
      }
      const Match* match = by_id_.find(from);
      // torch's schedules name a message by the stage that it goes to, so that nothing but the
      // values that were sent says whose output it is. What became of them on their way is another
      // question: see SelfCheck.
      const bool by_stage = match == nullptr && producer.kind == Kind::kReceived;
      match = by_stage ? by_id_.find(as_kind(producer, Kind::kSent)) : match;
      if (match == nullptr || match->candidate.empty()) {
        return false;
      }
      const auto statistics = between(source.candidate, match->candidate);
      if (!statistics && (by_stage || !one_program_)) {
        return false;  // another program may hand on another arrangement of the same values
      }
      const bool is_one_value = statistics && statistics->different == 0;
      if (!is_one_value && !(statistics && a_sum_lies_between(source, *match))) {
        add(edge, *match, statistics);
        break;
      }
    }
    return true;
  }

  void add(const Edge& edge, const Match& taken, const std::optional<Statistics>& statistics) {
    TensorVerdict verdict;
    verdict.id = edge.consumer;
    const TensorVerdict* const before = judged_.find(edge.producer);
    verdict.order = before == nullptr ? edge.order : before->order;
    verdict.holders = ranks_of(taken.candidate);
    Check check = failed(
        Question::kSource,
        fmt::format("its source is {}, but the reference takes {}: {}",
                    to_string(taken.id),
                    to_string(edge.producer),
                    statistics ? difference_text(*statistics) : "they have different shapes"));
    check.source = source_text(edge.producer);
    check.claim =
        taken.id.kind == Kind::kSent ? claim_of_message(edge, taken) : claim_of(edge, taken.id);
    verdict.add(std::move(check));
    added_.push_back(std::move(verdict));
  }

  // The consumer takes an older value of its source, or the input of another layer.
  [[nodiscard]] std::optional<Hypothesis> claim_of(const Edge& edge, const TensorId& taken) const {
    if (taken.path == edge.producer.path && taken.kind == edge.producer.kind) {
      return Hypothesis{Signature::kStale,
                        fmt::format("it takes {}, an older value of its source {}",
                                    to_string(taken),
                                    to_string(edge.producer))};
    }
    for (const auto& [consumer, sources] : sources_) {
      const bool in_its_place =
          vocabulary_.differ_in_number(Role::kLayers, consumer.path, edge.consumer.path) &&
          consumer.kind == edge.consumer.kind && consumer.slot == edge.consumer.slot &&
          consumer.microbatch == edge.consumer.microbatch && consumer.step == edge.consumer.step;
      const bool takes_it = std::any_of(sources.begin(), sources.end(), [&](const auto& source) {
        return as_output(source.second) == taken;
      });
      if (in_its_place && takes_it) {
        return Hypothesis{
            Signature::kWrongLayer,
            fmt::format(
                "it takes {}, which is the input of {}: two layers in a row read the same input",
                to_string(taken),
                consumer.path)};
      }
    }
    return std::nullopt;
  }

  // The message holds what another layer returned, in every bit.
  [[nodiscard]] std::optional<Hypothesis> claim_of_message(const Edge& edge,
                                                           const Match& taken) const {
    for (const Match& output : matches_) {
      const bool in_its_place =
          vocabulary_.differ_in_number(Role::kLayers, output.id.path, edge.producer.path) &&
          output.id.kind == Kind::kOutput && output.id.step == taken.id.step &&
          output.id.microbatch == taken.id.microbatch;
      const auto statistics =
          in_its_place ? between(output.candidate, taken.candidate) : std::nullopt;
      if (statistics && statistics->different == 0) {
        return Hypothesis{
            Signature::kWrongLayer,
            fmt::format("it takes {}, which is {} and not {}: stages take the layers in another "
                        "order",
                        to_string(taken.id),
                        to_string(output.id),
                        to_string(edge.producer))};
      }
    }
    return std::nullopt;
  }

  std::vector<TensorVerdict>& tensors_;
  bool one_program_;
  ModelVocabulary vocabulary_;
  std::span<const Match> matches_;
  IndexById<const Match> by_id_;
  IndexById<TensorVerdict> judged_;  // of tensors_, which grows only in finish()
  RecordedProducers sources_;        // of the candidate
  std::vector<TensorVerdict> added_;
  EdgeCoverage coverage_;
};

}  // namespace

EdgeCoverage check_edges(const Trace& reference,
                         const Trace& candidate,
                         std::span<const Match> matches,
                         std::vector<TensorVerdict>& tensors) {
  EdgeCheck check(candidate, matches, tensors, reference.manifest().names.empty());
  for_each_edge(reference, [&](int /*rank*/, const Edge& edge) { check.look_at(edge); });
  check.look_at_aliases();
  return check.finish();
}

}  // namespace ttrace
