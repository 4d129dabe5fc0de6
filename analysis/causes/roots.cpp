#include "analysis/causes/roots.h"

#include "analysis/align/module_path.h"
#include "analysis/causes/common/evidence.h"
#include "analysis/causes/source_lines.h"
#include "analysis/causes/where_to_look.h"
#include "analysis/checks/close_look.h"
#include "trace/base/kind.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

constexpr std::size_t kMostFurther = 7;

const Match* find(std::span<const Match> matches, const TensorId& id) {
  const auto found = std::ranges::find(matches, id, &Match::id);
  return found == matches.end() ? nullptr : &*found;
}

class Diagnoser {
 public:
  Diagnoser(std::span<const Match> matches, const ForcedTraces* forced, const Trace& candidate)
      : matches_(matches), forced_(forced), candidate_(candidate) {}

  [[nodiscard]] std::optional<Diagnosis> operator()(const TensorVerdict& finding) {
    const bool is_known =
        finding.symptom() == Symptom::kSource || finding.symptom() == Symptom::kTypesDiffer;
    if (is_known && finding.claim() != nullptr) {
      // Of a source, the id is a place where a module reads, and not always a record that others
      // could explain.
      const Hypothesis& claim = *finding.claim();
      return Diagnosis{claim.signature, claim.sentence, claim.named};
    }
    if (finding.symptom() == Symptom::kSource || original_of(finding) != nullptr) {
      return of_copy(finding);
    }
    if (finding.tier() == Tier::kGolden) {
      return std::nullopt;  // another precision, which its sentence says
    }
    const bool own = finding.tier() == Tier::kT1 && forced_ != nullptr;
    return diagnose(
        Evidence(own ? std::span(of_operators(finding.id)) : matches_, finding, candidate_));
  }

 private:
  // What a copy, or the input of a forward that ran again, should be equal to; null: none of both.
  static const TensorId* original_of(const TensorVerdict& finding) {
    for (const Question question : {Question::kRecompute, Question::kSource}) {
      const Check* const check = finding.find(question);
      if (check != nullptr && check->original) {
        return &*check->original;
      }
    }
    return nullptr;
  }

  // It is explained by that record of the same run.
  [[nodiscard]] std::optional<Diagnosis> of_copy(const TensorVerdict& finding) const {
    const TensorId* const id = original_of(finding);
    const Match* const own = find(matches_, finding.id);
    const Match* const original = id == nullptr ? nullptr : find(matches_, *id);
    if (own == nullptr || original == nullptr) {
      return std::nullopt;
    }
    Match copy;
    copy.id = finding.id;
    copy.reference = original->candidate;
    copy.candidate = own->candidate;
    return diagnose(Evidence(std::span(&copy, 1), finding, candidate_));
  }

  // What an operator should have made of the candidate's own inputs is the better reference of what
  // it made: nothing is inherited.
  const std::vector<Match>& of_operators(const TensorId& id) {
    if (!wide_) {
      wide_ = match(forced_->wide, candidate_);
    }
    if (const Match* const made = find(*wide_, id); made != nullptr && !made->reference.empty()) {
      return *wide_;
    }
    if (!native_) {
      native_ = match(forced_->native, candidate_);
    }
    return *native_;
  }

  std::span<const Match> matches_;
  const ForcedTraces* forced_;
  const Trace& candidate_;
  std::optional<std::vector<Match>> wide_;
  std::optional<std::vector<Match>> native_;
};

// Where a tensor stands in the model, whatever its step and micro-batch.
using Place = std::pair<Kind, std::string>;

Place place_of(const TensorVerdict& tensor) {
  return {tensor.id.kind, tensor.id.path};
}

// A wrong scale stands for the operand that it quantises, and a wrong scale or operand for what its
// module computes with it and for gradients of its weight. `wrong`: the places of all findings.
bool stand_for(const std::set<Place>& wrong, const TensorId& id) {
  return id.kind != Kind::kScale &&
         std::ranges::any_of(std::array{id.path, module_of(id.path)}, [&](const std::string& path) {
           return wrong.contains({Kind::kScale, path}) ||
                  (id.kind != Kind::kOperand && wrong.contains({Kind::kOperand, path}));
         });
}

// Indices of the first finding of every further tensor whose own operators are wrong; those that
// others stand for are counted.
std::vector<std::size_t> further_roots(const Report& report,
                                       std::span<const Match> matches,
                                       std::size_t first,
                                       std::size_t& left_out) {
  constexpr int kOfAKind = 2;
  std::set<TensorId> differing;
  for (const Match& match : matches) {
    if (copies_differ(match)) {
      differing.insert(match.id);
    }
  }
  std::set<Place> wrong;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.is_finding()) {
      wrong.insert(place_of(tensor));
    }
  }
  std::vector<std::size_t> roots;
  std::map<Kind, int> of_kind = {{report.tensors[first].id.kind, 1}};
  std::set<Place> seen = {place_of(report.tensors[first])};
  for (std::size_t i = first; i < report.tensors.size(); ++i) {
    const TensorVerdict& tensor = report.tensors[i];
    if (!tensor.is_finding()) {
      continue;
    }
    if (differing.contains(tensor.id)) {
      break;
    }
    if (i == first || stand_for(wrong, tensor.id) || tensor.tier() != Tier::kT1 ||
        !seen.insert(place_of(tensor)).second) {
      continue;
    }
    const bool shown = roots.size() < kMostFurther &&
                       (!is_of_optimizer(tensor.id.kind) || ++of_kind[tensor.id.kind] <= kOfAKind);
    if (shown) {
      roots.push_back(i);
    } else {
      ++left_out;
    }
  }
  return roots;
}

}  // namespace

void find_roots(std::span<const Match> matches,
                const ForcedTraces* forced,
                const Trace& candidate,
                const Heads& heads,
                Report& report) {
  const auto found = std::ranges::find_if(report.tensors, &TensorVerdict::is_finding);
  if (found == report.tensors.end()) {
    return;
  }
  const auto first = static_cast<std::size_t>(found - report.tensors.begin());
  report.first_divergence = first;
  report.where_to_look = where_to_look(report.tensors, first, candidate);
  const CodeLines lines = code_lines_of(candidate);
  report.source = source_lines(report.tensors, first, lines);
  const Match* const match = find(matches, found->id);
  if (match != nullptr && !match->reference.empty() && !match->candidate.empty()) {
    report.close_look = look_closely(*match, candidate, heads.size_in(match->id));
  }
  if (report.partial()) {
    return;  // what is missing would be taken for what went wrong
  }
  Diagnoser diagnosis_of(matches, forced, candidate);
  report.diagnosis = diagnosis_of(*found);
  for (const std::size_t root : further_roots(report, matches, first, report.roots_left_out)) {
    report.further_roots.push_back(
        {root, diagnosis_of(report.tensors[root]), source_lines(report.tensors, root, lines)});
  }
}

}  // namespace ttrace
