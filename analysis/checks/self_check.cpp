#include "analysis/checks/self_check.h"

#include "analysis/checks/collective_values.h"
#include "analysis/findings/wording.h"
#include "trace/merge/merge.h"
#include "trace/sums/statistics.h"

#include <ttrace/collective_call.h>
#include <ttrace/error.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr int kTensorSlot = 0;

std::vector<int> ranks_of(std::span<const Shard> shards) {
  std::vector<int> ranks;
  for (const Shard& shard : shards) {
    ranks.push_back(shard.rank);
  }
  return ranks;
}

void accuse(TensorVerdict& verdict, Symptom symptom, std::string sentence, std::vector<int> ranks) {
  verdict.status = Status::kDiverged;
  verdict.symptom = symptom;
  verdict.cause = std::move(sentence);
  verdict.ranks = std::move(ranks);
}

// Sent and received tensors of one id, merged. Nothing where they are equal in every bit.
std::optional<std::string> difference(std::span<const Shard> sent,
                                      std::span<const Shard> received) {
  const MergeResult left = merge(sent);
  const MergeResult right = merge(received);
  for (const MergeResult* side : {&left, &right}) {
    if (!side->findings.empty()) {
      return (side == &left ? "what was sent: " : "what was received: ") +
             side->findings.front().message;
    }
  }
  if (left.shape != right.shape || left.type != right.type) {
    return std::string(name_of(left.type)) + " " + shape_text(left.shape) + " was sent and " +
           std::string(name_of(right.type)) + " " + shape_text(right.shape) + " received";
  }
  const Statistics statistics = compare(
      left.type, left.bytes.data(), right.type, right.bytes.data(), element_count(left.shape));
  if (statistics.different == 0) {
    return std::nullopt;
  }
  return std::to_string(statistics.different) + " of " +
         counted(statistics.count, "element", "elements") + " received on " +
         ranks_text(ranks_of(received)) + " are not what " + ranks_text(ranks_of(sent)) +
         " sent, largest difference " + short_number(statistics.max_difference);
}

const Shard* of_rank(std::span<const Shard> shards, int rank) {
  const auto found = std::find_if(
      shards.begin(), shards.end(), [rank](const Shard& shard) { return shard.rank == rank; });
  return found == shards.end() ? nullptr : &*found;
}

CollectiveCall call_of(const Shard& shard) {
  return parse_collective_call(
      {reinterpret_cast<const char*>(shard.bytes.data()), shard.bytes.size()});
}

// "all-reduce (sum) number 17 of group tp-0 in decoder.layers.0.mlp.linear_fc2"
std::string name_of_call(const CollectiveCall& call, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return description_of(call) + " number " + path.substr(dot + 1) + " of group " +
         path.substr(0, dot) + (call.module.empty() ? "" : " in " + call.module);
}

// What the ranks understood differently.
std::optional<std::string> disagreement(const std::vector<Member>& members) {
  const CollectiveCall& first = members.front().call;
  for (const Member& member : members) {
    const CollectiveCall& call = member.call;
    if (call.operation != first.operation || call.reduction != first.reduction ||
        call.size != first.size || call.root != first.root) {
      return "rank " + std::to_string(members.front().input.rank) + " calls " +
             description_of(first) + " among " + std::to_string(first.size) + ", rank " +
             std::to_string(member.input.rank) + " " + description_of(call) + " among " +
             std::to_string(call.size) + (call.root != first.root ? " with another root" : "") +
             (call.module == first.module || call.module.empty() ? "" : " in " + call.module);
    }
  }
  return std::nullopt;
}

}  // namespace

SelfCheck::SelfCheck(std::span<const Match> matches, std::set<std::int64_t> interrupted)
    : matches_(matches), interrupted_(std::move(interrupted)) {
  for (std::size_t i = 0; i < matches.size(); ++i) {
    if (concerns(matches[i].id.kind) && !matches[i].candidate.empty()) {
      positions_.emplace(matches[i].id, i);
    }
  }
}

bool SelfCheck::concerns(Kind kind) {
  return kind == Kind::kSent || kind == Kind::kReceived || kind == Kind::kCollectiveInput ||
         kind == Kind::kCollectiveOutput;
}

const Match* SelfCheck::beside(const Match& match, Kind kind, int slot) const {
  TensorId id = match.id;
  id.kind = kind;
  id.slot = slot;
  const auto found = positions_.find(id);
  return found == positions_.end() ? nullptr : &matches_[found->second];
}

bool SelfCheck::is_subject(std::size_t index) const {
  const Match& match = matches_[index];
  if (match.candidate.empty()) {
    return false;
  }
  switch (match.id.kind) {
    case Kind::kSent:
      return beside(match, Kind::kReceived, match.id.slot) == nullptr;
    case Kind::kReceived:
    case Kind::kCollectiveOutput:
      return true;
    default:
      return false;  // a collective that ends after the step leaves its input only
  }
}

TensorVerdict SelfCheck::judge(std::size_t index) const {
  const Match& match = matches_[index];
  TensorVerdict verdict;
  verdict.id = match.id;
  verdict.order = match.order;
  verdict.tier = Tier::kT0;
  verdict.bound_source = "exact (within the candidate)";
  verdict.ranks = ranks_of(match.candidate);
  if (match.id.kind == Kind::kCollectiveOutput) {
    judge_collective(match, verdict);
  } else {
    judge_message(match, verdict);
  }
  if (verdict.status == Status::kDiverged && interrupted_.contains(match.id.step)) {
    verdict.status = Status::kIncomplete;
    verdict.symptom = Symptom::kNone;
  }
  return verdict;
}

void SelfCheck::judge_message(const Match& match, TensorVerdict& verdict) const {
  if (match.id.kind == Kind::kSent) {
    accuse(verdict,
           Symptom::kMessage,
           "sent by " + ranks_text(verdict.ranks) + " and received by nobody",
           verdict.ranks);
    return;
  }
  const Match* sent = beside(match, Kind::kSent, match.id.slot);
  if (sent == nullptr) {
    accuse(verdict,
           Symptom::kMessage,
           "received by " + ranks_text(verdict.ranks) + " and sent by nobody",
           verdict.ranks);
  } else if (auto sentence = difference(sent->candidate, match.candidate)) {
    accuse(verdict, Symptom::kMessage, *std::move(sentence), verdict.ranks);
  }
}

void SelfCheck::judge_collective(const Match& output, TensorVerdict& verdict) const {
  const Match* input = beside(output, Kind::kCollectiveInput, kTensorSlot);
  const Match* calls = beside(output, Kind::kCollectiveInput, kCollectiveCallSlot);
  if (input == nullptr || calls == nullptr) {
    accuse(verdict, Symptom::kCollective, "its input was not recorded", verdict.ranks);
    return;
  }
  std::vector<Member> members;
  std::vector<int> unfinished;
  for (const Shard& call : calls->candidate) {
    const Shard* in = of_rank(input->candidate, call.rank);
    const Shard* out = of_rank(output.candidate, call.rank);
    if (in == nullptr || out == nullptr) {
      unfinished.push_back(call.rank);
    }
    members.push_back({call_of(call), in != nullptr ? *in : call, out != nullptr ? *out : call});
  }
  std::stable_sort(members.begin(), members.end(), [](const Member& left, const Member& right) {
    return left.call.rank < right.call.rank;
  });
  const std::string name = name_of_call(members.front().call, output.id.path);
  const std::vector<int> all = ranks_of(calls->candidate);
  if (auto sentence = disagreement(members)) {
    accuse(verdict, Symptom::kCollective, name + ": " + *sentence, all);
  } else if (std::ssize(members) != members.front().call.size) {
    accuse(verdict,
           Symptom::kCollective,
           name + ": only " + ranks_text(all) + " of " + std::to_string(members.front().call.size) +
               " made a call of this number",
           all);
  } else if (!unfinished.empty()) {
    accuse(verdict,
           Symptom::kCollective,
           name + ": never finished on " + ranks_text(unfinished),
           unfinished);
  } else if (auto fault = check_values(members)) {
    accuse(verdict, Symptom::kCollective, name + ": " + fault->sentence, fault->ranks);
  }
}

}  // namespace ttrace
