#include "analysis/checks/self_check.h"

#include "analysis/checks/collective_values.h"
#include "analysis/checks/structure.h"
#include "analysis/checks/values_check.h"
#include "analysis/findings/wording.h"
#include "trace/base/kind.h"
#include "trace/file/record.h"
#include "trace/merge/merge.h"
#include "trace/sums/statistics.h"

#include <ttrace/collective_call.h>
#include <ttrace/error.h>

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr int kTensorSlot = 0;

// How the merged sent and received tensors of one id differ. Nothing if they are equal in every
// bit.
std::optional<std::string> difference(std::span<const Shard> sent,
                                      std::span<const Shard> received) {
  const MergeResult left = merge(sent);
  const MergeResult right = merge(received);
  for (const MergeResult* side : {&left, &right}) {
    if (!side->findings.empty()) {
      return (side == &left ? "the parts that were sent contradict each other: "
                            : "the parts that were received contradict each other: ") +
             side->findings.front().message;
    }
  }
  if (left.shape != right.shape || left.type != right.type) {
    return fmt::format("{} {} was sent, but {} {} was received",
                       name_of(left.type),
                       shape_text(left.shape),
                       name_of(right.type),
                       shape_text(right.shape));
  }
  const Statistics statistics = statistics_of(left, right);
  if (statistics.different == 0) {
    return std::nullopt;
  }
  return fmt::format(
      "{} of {} that {} received differ from what {} sent; the largest difference is {}",
      statistics.different,
      counted(statistics.count, "element"),
      ranks_text(ranks_of(received)),
      ranks_text(ranks_of(sent)),
      short_number(statistics.max_difference));
}

CollectiveCall call_of(const Shard& shard) {
  return parse_collective_call(
      {reinterpret_cast<const char*>(shard.bytes.data()), shard.bytes.size()});
}

// "all-reduce (sum) number 17 of group tp-0 in decoder.layers.0.mlp.linear_fc2"
std::string name_of_call(const CollectiveCall& call, const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return fmt::format("{} number {} of group {}{}",
                     description_of(call),
                     path.substr(dot + 1),
                     path.substr(0, dot),
                     call.module.empty() ? "" : " in " + call.module);
}

// The first difference between the ranks' calls.
std::optional<std::string> disagreement(const std::vector<Member>& members) {
  const CollectiveCall& first = members.front().call;
  for (const Member& member : members) {
    const CollectiveCall& call = member.call;
    if (call.operation != first.operation || call.reduction != first.reduction ||
        call.size != first.size || call.root != first.root) {
      return fmt::format(
          "rank {} calls {} among {} ranks, but rank {} calls {} among {}{}{}",
          members.front().input.rank,
          description_of(first),
          first.size,
          member.input.rank,
          description_of(call),
          call.size,
          call.root != first.root ? " with another root" : "",
          call.module == first.module || call.module.empty() ? "" : " in " + call.module);
    }
  }
  return std::nullopt;
}

}  // namespace

SelfCheck::SelfCheck(std::span<const Match> matches,
                     std::set<std::int64_t> interrupted,
                     const Allowances& allowances)
    : matches_(matches),
      interrupted_(std::move(interrupted)),
      any_order_(allowances.has(Allowance::kOrderOfSums)),
      by_id_(matches) {}

bool SelfCheck::concerns(Kind kind) {
  return is_message(kind) || is_collective(kind) || kind == Kind::kStart;
}

const Match* SelfCheck::record_near(const Match& match, Kind kind, int slot) const {
  TensorId id = match.id;
  id.kind = kind;
  id.slot = slot;
  const Match* const found = by_id_.find(id);
  return found == nullptr || found->candidate.empty() ? nullptr : found;
}

bool SelfCheck::is_subject(std::size_t index) const {
  const Match& match = matches_[index];
  if (match.candidate.empty()) {
    return false;
  }
  switch (match.id.kind) {
    case Kind::kSent:
      return record_near(match, Kind::kReceived, match.id.slot) == nullptr;
    case Kind::kReceived:
    case Kind::kCollectiveOutput:
    case Kind::kStart:
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
  verdict.holders = ranks_of(match.candidate);
  verdict.is_in_reference = false;
  Check check = match.id.kind == Kind::kCollectiveOutput ? check_collective(match)
                : match.id.kind == Kind::kStart          ? check_start(match)
                                                         : check_message(match);
  check.source = "exact (within the candidate)";
  if (!check.holds && interrupted_.contains(match.id.step)) {
    verdict.excuse(Excuse::kInterrupted, std::move(check.sentence));
    check.holds = true;
    check.sentence.clear();
  }
  verdict.add(std::move(check));
  return verdict;
}

Check SelfCheck::check_message(const Match& match) const {
  const std::vector<int> ranks = ranks_of(match.candidate);
  const auto wrong = [&](std::string sentence) {
    return failed(Question::kMessage, std::move(sentence), ranks);
  };
  if (match.id.kind == Kind::kSent) {
    return wrong(ranks_text(ranks) + " sent it, but no rank received it");
  }
  const Match* sent = record_near(match, Kind::kSent, match.id.slot);
  if (sent == nullptr) {
    return wrong(ranks_text(ranks) + " received it, but no rank sent it");
  }
  if (auto sentence = difference(sent->candidate, match.candidate)) {
    return wrong(*std::move(sentence));
  }
  return passed(Question::kMessage, "");
}

Check SelfCheck::check_start(const Match& match) const {
  const Match* const parameter = record_near(match, Kind::kParam, match.id.slot);
  for (const Shard& own : match.candidate) {
    std::vector<int> alike = {own.rank};
    std::vector<int> others;
    for (const Shard& shard : parameter == nullptr ? std::vector<Shard>() : parameter->candidate) {
      if (shard.rank == own.rank || shard.record->undeclared ||
          shard.record->placement != own.record->placement) {
        continue;
      }
      const Shard* const start = shard_of(match.candidate, shard.rank);
      const bool is_alike = start != nullptr && std::ranges::equal(start->bytes, own.bytes);
      (is_alike ? alike : others).push_back(shard.rank);
    }
    if (others.empty()) {
      continue;
    }
    std::ranges::sort(alike);
    std::vector<int> all = alike;
    all.insert(all.end(), others.begin(), others.end());
    std::ranges::sort(all);
    Check check = failed(
        Question::kStructure,
        fmt::format("{} begin with different values of {}: those of {} are not those of {}. The "
                    "reference's have taken their place, so nothing that follows shows it",
                    ranks_text(all),
                    match.id.path,
                    ranks_text(others),
                    ranks_text(alike)),
        all);
    check.narrower = Symptom::kReplicasDisagree;
    return check;
  }
  return passed(Question::kStructure, "");
}

Check SelfCheck::check_collective(const Match& output) const {
  const auto wrong = [](std::string sentence, std::vector<int> ranks) {
    return failed(Question::kCollective, std::move(sentence), std::move(ranks));
  };
  const Match* input = record_near(output, Kind::kCollectiveInput, kTensorSlot);
  const Match* calls = record_near(output, Kind::kCollectiveInput, kCollectiveCallSlot);
  if (input == nullptr || calls == nullptr) {
    return wrong("its input was not recorded", ranks_of(output.candidate));
  }
  std::vector<Member> members;
  std::vector<int> unfinished;
  for (const Shard& call : calls->candidate) {
    const Shard* in = shard_of(input->candidate, call.rank);
    const Shard* out = shard_of(output.candidate, call.rank);
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
    return wrong(name + ": " + *sentence, all);
  }
  if (std::ssize(members) != members.front().call.size) {
    return wrong(fmt::format("{}: only {} made this call, but the group has {} ranks",
                             name,
                             ranks_text(all),
                             members.front().call.size),
                 all);
  }
  if (!unfinished.empty()) {
    return wrong(fmt::format("{} never finished on {}", name, ranks_text(unfinished)), unfinished);
  }
  if (auto fault = check_values(members, any_order_)) {
    return wrong(name + ": " + fault->sentence, fault->ranks);
  }
  return passed(Question::kCollective, "");
}

}  // namespace ttrace
