#include "analysis/zoom/zoomed_pair.h"

#include "analysis/zoom/operator_alignment.h"
#include "trace/base/kind.h"
#include "trace/base/tensor_id_hash.h"
#include "trace/sums/statistics.h"

#include <ttrace/error.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace ttrace {
namespace {

using OwnNames =
    std::unordered_map<TensorId, TensorId, TensorIdHash>;  // own ids -> the reference's

// Whether an operator makes numbers of nothing, and not as many as the other program's does. Each
// rank may then count from its own zero, so that its values are right or wrong only in what reads
// them.
bool counts_for_itself(const ListedOperator& listed, const ListedOperator& partner) {
  return listed.call.made_by.empty() && !listed.call.reads_outside && listed.shape != partner.shape;
}

// A result has the slot of its partner's.
OwnNames names_of(const OperatorSequence& reference,
                  const OperatorSequence& other,
                  const std::vector<std::optional<std::size_t>>& partners) {
  OwnNames names;
  for (std::size_t i = 0; i < partners.size(); ++i) {
    if (!partners[i] || counts_for_itself(other.operators[i], reference.operators[*partners[i]])) {
      continue;
    }
    for (const TensorId& own : other.operators[i].call.results) {
      const auto& theirs = reference.operators[*partners[i]].call.results;
      const auto found = std::ranges::find(theirs, own.slot, &TensorId::slot);
      if (found != theirs.end()) {
        names.emplace(own, *found);
      }
    }
  }
  return names;
}

// `name_of`: the new id of a zoom's record; nothing: it is left out.
void rename(Trace& trace,
            const std::function<std::optional<TensorId>(int rank, const TensorId& id)>& name_of) {
  for (RankFile& file : trace.files()) {
    std::vector<Record> kept;
    for (Record record : file.records()) {
      const std::optional<TensorId> id =
          is_of_zoom(record.id.kind) ? name_of(file.layout().rank, record.id) : record.id;
      if (id) {
        record.id = *id;
        kept.push_back(std::move(record));
      }
    }
    file.set_records(std::move(kept));
  }
}

std::optional<TensorId> find(const OwnNames& names, const TensorId& id) {
  const auto found = names.find(id);
  return found == names.end() ? std::nullopt : std::optional(found->second);
}

// Whether an operator makes addends of addends.
bool keeps_addends(const ListedOperator& listed) {
  constexpr std::array<std::string_view, 6> kLinear = {"add", "sub", "neg", "sum", "cat", "stack"};
  const bool scales = listed.base == "mul" || listed.base == "div";
  return only_copies(listed) || std::ranges::find(kLinear, listed.base) != kLinear.end() ||
         (scales && listed.call.made_by.size() == 1);
}

// Whether a sum over ranks reads, directly or through operators that keep addends, what `first`
// made.
bool reaches_sum(const OperatorSequence& sequence, std::size_t first) {
  std::vector<bool> reached(sequence.operators.size());
  reached[first] = true;
  for (std::size_t i = first + 1; i < sequence.operators.size(); ++i) {
    const ListedOperator& listed = sequence.operators[i];
    const bool reads =
        std::ranges::any_of(listed.call.made_by, [&](std::size_t maker) { return reached[maker]; });
    if (reads && sums_over_ranks(listed)) {
      return true;
    }
    reached[i] = reads && keeps_addends(listed);
  }
  return false;
}

using Values = std::map<TensorId, std::pair<const RankFile*, const Record*>>;

Values values_of(const Trace& trace, int rank) {
  Values values;
  for (const RankFile& file : trace.files()) {
    for (const Record& record : file.records()) {
      if (file.layout().rank == rank && is_of_operator(record.id.kind)) {
        values.emplace(record.id, std::pair(&file, &record));
      }
    }
  }
  return values;
}

// Whether two records hold other values, one after the other, beyond round-off. Records of
// different sizes cannot tell.
bool differ(const Values& left,
            const TensorId& first,
            const Values& right,
            const TensorId& second) {
  constexpr double kRoundOff = 0.05;
  const auto one = left.find(first);
  const auto two = right.find(second);
  if (one == left.end() || two == right.end()) {
    return false;
  }
  const auto& [expected_file, expected] = one->second;
  const auto& [found_file, found] = two->second;
  expected_file->require_intact(*expected);
  found_file->require_intact(*found);
  const std::int64_t count = element_count(expected->shape);
  return count == element_count(found->shape) && compare(expected->type,
                                                         expected_file->bytes(*expected).data(),
                                                         found->type,
                                                         found_file->bytes(*found).data(),
                                                         count)
                                                         .relative_error() > kRoundOff;
}

void find_changing(const OperatorSequence& reference,
                   const Trace& reference_trace,
                   const Trace& candidate_trace,
                   ZoomedRank& rank) {
  const Values all = values_of(reference_trace, reference.rank);
  const Values own = values_of(candidate_trace, rank.sequence.rank);
  for (std::size_t i = 0; i < rank.sequence.operators.size(); ++i) {
    const ListedOperator& listed = rank.sequence.operators[i];
    const bool sums = sums_over_ranks(listed);
    if (rank.partners[i] || !listed.has_result() || (!sums && !only_copies(listed))) {
      continue;
    }
    const auto sources = sources_of(rank.sequence, i, [&](std::size_t position) {
                           return rank.partners[position].has_value();
                         }).paired;
    if (sources.size() != 1) {
      continue;
    }
    const std::size_t source = *sources.begin();
    const auto& results =
        (sums ? reference.operators[*rank.partners[source]] : rank.sequence.operators[source])
            .call.results;
    if (results.size() == 1 &&
        differ(sums ? all : own, results.front(), own, listed.call.results.front())) {
      rank.changing.insert(i);
    }
  }
}

void require_operators(const Trace& trace, std::size_t sequences) {
  TTRACE_CHECK(sequences > 0,
               UsageError,
               "the zoom pass ",
               trace.directory(),
               " ran no operator in the module that it looks into; name another one with --module");
}

}  // namespace

bool ZoomedPair::is_summed_later(const TensorId& id) const {
  return std::ranges::all_of(candidate, [&](const ZoomedRank& rank) {
    for (std::size_t i = 0; i < rank.partners.size(); ++i) {
      const auto& partner = rank.partners[i];
      if (partner && std::ranges::find(reference.operators[*partner].call.results, id) !=
                         reference.operators[*partner].call.results.end()) {
        return reaches_sum(rank.sequence, i);
      }
    }
    return false;
  });
}

ZoomedPair align_operators(Trace& reference, Trace& candidate) {
  std::vector<OperatorSequence> left = read_operators(reference);
  std::vector<OperatorSequence> right = read_operators(candidate);
  require_operators(reference, left.size());
  require_operators(candidate, right.size());
  ZoomedPair pair{std::move(left.front()), {}, {}};
  std::map<int, OwnNames> names;
  std::map<TensorId, std::size_t> holders;
  for (OperatorSequence& sequence : right) {
    auto partners = align(pair.reference, sequence);
    names[sequence.rank] = names_of(pair.reference, sequence, partners);
    for (const auto& [own, theirs] : names[sequence.rank]) {
      ++holders[theirs];
    }
    pair.candidate.push_back({std::move(sequence), std::move(partners), {}});
    find_changing(pair.reference, reference, candidate, pair.candidate.back());
  }
  for (const auto& [id, count] : holders) {
    if (count == right.size()) {
      pair.paired.insert(id);
    }
  }
  const auto if_paired = [&](std::optional<TensorId> id) {
    return id && pair.paired.contains(*id) ? std::move(id) : std::nullopt;
  };
  rename(reference, [&](int, const TensorId& id) { return if_paired(id); });
  rename(candidate, [&](int rank, const TensorId& id) { return if_paired(find(names[rank], id)); });
  return pair;
}

void align_pass(const OperatorSequence& reference, Trace& pass) {
  const std::vector<OperatorSequence> sequences = read_operators(pass);
  OwnNames names;
  if (!sequences.empty()) {
    names = names_of(reference, sequences.front(), align(reference, sequences.front()));
  }
  rename(pass, [&](int, const TensorId& id) { return find(names, id); });
}

}  // namespace ttrace
