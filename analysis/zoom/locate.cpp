#include "analysis/zoom/locate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kMostNamed = 8;  // operators in a list

NamedOperator named(const ListedOperator& listed) {
  return {listed.call.name, listed.call.module, listed.call.source, listed.call.backward};
}

// Whether an operator that one side alone runs can be what is wrong.
bool is_suspect(const ListedOperator& listed) {
  return !listed.call.communicates && !only_copies(listed);
}

class Locator {
 public:
  Locator(const ZoomedPair& pair, const Report& compared) : pair_(pair), compared_(compared) {
    for (const TensorVerdict& tensor : compared.tensors) {
      judged_.insert(tensor.id);
      if (tensor.is_finding()) {
        wrong_.insert(tensor.id);
      }
    }
    for (std::size_t i = 0; i < pair.reference.operators.size(); ++i) {
      for (const TensorId& id : pair.reference.operators[i].call.results) {
        owner_.emplace(id, i);
      }
    }
    look_at(pair.candidate.front());
  }

  ZoomReport run() {
    count();
    if (compared_.first_divergence) {
      describe_result();
    } else {
      name_unpaired();
    }
    list_unpaired();
    return std::move(report_);
  }

 private:
  void look_at(const ZoomedRank& rank) {
    rank_ = &rank;
    has_partner_.assign(pair_.reference.operators.size(), false);
    for (const auto& partner : rank.partners) {
      if (partner) {
        has_partner_[*partner] = true;
      }
    }
  }

  // Those that the first wrong result concerns, ascending; all of them if it names none.
  [[nodiscard]] std::vector<const ZoomedRank*> concerned() const {
    const std::vector<int> ranks = compared_.tensors[*compared_.first_divergence].ranks();
    std::vector<const ZoomedRank*> found;
    std::vector<const ZoomedRank*> all;
    for (const ZoomedRank& rank : pair_.candidate) {
      all.push_back(&rank);
      if (std::ranges::find(ranks, rank.sequence.rank) != ranks.end()) {
        found.push_back(&rank);
      }
    }
    return found.empty() ? all : found;
  }

  void count() {
    report_.reference_operators = pair_.reference.operators.size();
    for (const ZoomedRank& rank : pair_.candidate) {
      report_.candidate_operators =
          std::max(report_.candidate_operators, rank.sequence.operators.size());
    }
    report_.compared = compared_.tensors.size();
  }

  [[nodiscard]] std::optional<std::size_t> candidate_of(std::size_t position) const {
    for (std::size_t i = 0; i < rank_->partners.size(); ++i) {
      if (rank_->partners[i] == position) {
        return i;
      }
    }
    return std::nullopt;
  }

  // Whether nothing that stands in `between` reaches `first` but through `gate`.
  static bool is_on_every_way(const OperatorSequence& sequence,
                              std::size_t first,
                              const std::set<std::size_t>& between,
                              std::size_t gate) {
    std::set<std::size_t> open = between;
    std::vector<std::size_t> reached = sequence.operators[first].call.made_by;
    std::erase_if(reached, [&](std::size_t i) { return !open.contains(i); });
    while (!reached.empty()) {
      const std::size_t position = reached.back();
      reached.pop_back();
      if (position == gate || !open.erase(position)) {
        continue;
      }
      const OperatorCall& call = sequence.operators[position].call;
      const bool begins = call.reads_outside || call.made_by.empty() ||
                          std::ranges::any_of(call.made_by, [&](std::size_t maker) {
                            return !between.contains(maker);
                          });
      if (begins) {
        return false;
      }
      reached.insert(reached.end(), call.made_by.begin(), call.made_by.end());
    }
    return true;
  }

  // The one of `between` that can be what is wrong: the first through which all of it goes, or else
  // the first. A sum that serves a division alone is not named; the division is.
  static std::optional<std::size_t> suspect_of(const OperatorSequence& sequence,
                                               std::size_t first,
                                               const std::set<std::size_t>& between) {
    std::optional<std::size_t> earliest;
    for (const std::size_t position : between) {
      if (!is_suspect(sequence.operators[position])) {
        continue;
      }
      if (is_on_every_way(sequence, first, between, position)) {
        return position;
      }
      earliest = earliest.value_or(position);
    }
    return earliest;
  }

  void describe_result() {
    const TensorVerdict& tensor = compared_.tensors[*compared_.first_divergence];
    const std::size_t position = owner_.at(tensor.id);
    report_.id = to_string(tensor.id);
    report_.what = tensor.causes();
    report_.diagnosis = compared_.diagnosis;
    // One rank alone may run an operator that the others do not.
    const std::vector<const ZoomedRank*> ranks = concerned();
    const bool has_other = std::ranges::any_of(ranks, [&](const ZoomedRank* rank) {
      look_at(*rank);
      return blame(position);
    });
    if (!has_other) {
      look_at(*ranks.front());
    }
    const auto candidate = candidate_of(position);
    report_.result = named(candidate ? rank_->sequence.operators[*candidate]
                                     : pair_.reference.operators[position]);
    if (candidate) {
      describe_inputs(*candidate);
    }
    if (!has_other) {
      report_.first = report_.result;
    }
  }

  // Names whoever stands between the last right results and the first wrong one, which the operator
  // at `position` of the reference returned. False if nobody does.
  bool blame(std::size_t position) {
    const auto candidate = candidate_of(position);
    std::set<std::size_t> here;
    if (candidate) {
      here = sources_of(rank_->sequence, *candidate, [&](std::size_t i) {
               return rank_->partners[i].has_value();
             }).unpaired;
    }
    if (const auto extra = candidate ? suspect_of(rank_->sequence, *candidate, here) : candidate) {
      return name(rank_->sequence.operators[*extra], OperatorFault::kOnlyInCandidate);
    }
    const std::set<std::size_t> there = sources_of(pair_.reference, position, [&](std::size_t i) {
                                          return has_partner_[i];
                                        }).unpaired;
    if (const auto missing = suspect_of(pair_.reference, position, there)) {
      return name(pair_.reference.operators[*missing], OperatorFault::kOnlyInReference);
    }
    const auto changing =
        std::ranges::find_if(here, [&](std::size_t i) { return rank_->changing.contains(i); });
    if (changing == here.end()) {
      return false;
    }
    const ListedOperator& listed = rank_->sequence.operators[*changing];
    return name(
        listed,
        listed.call.communicates ? OperatorFault::kCommunication : OperatorFault::kOnlyInCandidate);
  }

  bool name(const ListedOperator& listed, OperatorFault fault) {
    report_.first = named(listed);
    report_.fault = fault;
    return true;
  }

  void describe_inputs(std::size_t position) {
    const ListedOperator& listed = rank_->sequence.operators[position];
    report_.reads_outside = listed.call.reads_outside;
    for (const std::size_t maker : listed.call.made_by) {
      if (!rank_->partners[maker]) {
        continue;
      }
      const ListedOperator& source = rank_->sequence.operators[maker];
      const auto& results = pair_.reference.operators[*rank_->partners[maker]].call.results;
      if (std::ranges::none_of(results, [&](const TensorId& id) { return judged_.contains(id); })) {
        continue;
      }
      const bool is_wrong =
          std::ranges::any_of(results, [&](const TensorId& id) { return wrong_.contains(id); });
      (is_wrong ? report_.wrong_inputs : report_.clean_inputs).push_back(named(source));
    }
  }

  // All results that both have are right: the error is behind the last of them.
  void name_unpaired() {
    const auto& operators = rank_->sequence.operators;
    for (std::size_t i = 0; i < operators.size() && !report_.first; ++i) {
      if (!rank_->partners[i] && is_suspect(operators[i])) {
        name(operators[i], OperatorFault::kOnlyInCandidate);
      }
    }
    for (std::size_t i = 0; i < has_partner_.size() && !report_.first; ++i) {
      if (!has_partner_[i] && is_suspect(pair_.reference.operators[i])) {
        name(pair_.reference.operators[i], OperatorFault::kOnlyInReference);
      }
    }
    for (std::size_t i = operators.size(); i-- > 0 && !report_.first;) {
      if (sums_over_ranks(operators[i]) &&
          (operators[i].call.results.empty() || rank_->changing.contains(i))) {
        name(operators[i], OperatorFault::kCommunication);
      }
    }
    if (!report_.first) {
      report_.problem =
          "round-off explains every operator that ran inside, so the error is made outside of them";
    }
  }

  void list_unpaired() {
    for (std::size_t i = 0; i < has_partner_.size(); ++i) {
      add(report_.only_reference, has_partner_[i], pair_.reference.operators[i]);
    }
    for (std::size_t i = 0; i < rank_->partners.size(); ++i) {
      add(report_.only_candidate, rank_->partners[i].has_value(), rank_->sequence.operators[i]);
    }
  }

  static void add(std::vector<NamedOperator>& list,
                  bool has_partner,
                  const ListedOperator& listed) {
    if (!has_partner && is_suspect(listed) && list.size() < kMostNamed) {
      list.push_back(named(listed));
    }
  }

  const ZoomedPair& pair_;
  const Report& compared_;
  const ZoomedRank* rank_ = nullptr;
  std::set<TensorId> judged_;
  std::set<TensorId> wrong_;
  std::map<TensorId, std::size_t> owner_;
  std::vector<bool> has_partner_;  // of the reference, on that rank
  ZoomReport report_;
};

}  // namespace

ZoomReport locate(const ZoomedPair& pair, const Report& compared) {
  return Locator(pair, compared).run();
}

}  // namespace ttrace
