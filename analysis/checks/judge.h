// Asks every question of a tensor that the traces at hand can answer.
//
// Each question returns checks (analysis/findings/check.h); none of them looks at what another one
// found, so that they may be asked in any order.
//
// Thread-safety: Judge is immutable; judge() may run in any number of threads.
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/bounds/bounds.h"
#include "analysis/bounds/tolerance.h"
#include "analysis/checks/exact_check.h"
#include "analysis/checks/golden_check.h"
#include "analysis/checks/operator_check.h"
#include "analysis/checks/self_check.h"
#include "analysis/findings/verdict.h"
#include "trace/base/kind.h"
#include "trace/samples/align_samples.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace ttrace {

// Steps that were interrupted while they were written: what is missing there is not a finding.
struct Interruptions {
  std::set<std::int64_t> reference;
  std::set<std::int64_t> candidate;
};

// The checks of other passes of the reference; nothing if there are none.
struct OtherPasses {
  std::optional<OperatorCheck> operators;
  std::optional<GoldenCheck> golden;
  std::optional<ExactCheck> exact;  // takes the place of bounds
};

struct JudgeOptions {
  bool same_types = true;  // element types must then be equal on both sides
  Interruptions interruptions = {};
  Heads heads = {};
  OtherPasses others = {};
  const SampleAlignment* samples = nullptr;  // null: the candidate's samples are the reference's
  std::set<TensorId> given = {};             // inputs of the reference's model, see given_data.h
  Allowances allowances = {};
  std::uint64_t shuffle = 0;  // above 0: questions are asked in an order that follows from this
};

class Judge {
 public:
  // Keeps references.
  Judge(std::span<const Match> matches, const Bounds& bounds, JudgeOptions options)
      : matches_(matches),
        bounds_(bounds),
        self_check_(matches, options.interruptions.candidate, options.allowances),
        options_(std::move(options)) {}

  // Whether a tensor gets a verdict; see self_check.h for those that do not.
  [[nodiscard]] bool judges(std::size_t index) const {
    const Kind kind = matches_[index].id.kind;
    return family_of(kind) != KindFamily::kProgram &&
           (!SelfCheck::concerns(kind) || self_check_.is_subject(index));
  }
  // Requires: judges(index). `tolerance`, where the user asked for one, replaces the bound. Throws
  // UsageError if the reference contradicts itself, because the candidate is measured by it.
  [[nodiscard]] TensorVerdict judge(std::size_t index,
                                    const std::optional<Tolerance>& tolerance = {}) const;

 private:
  struct Subject;
  using Ask = void (Judge::*)(const Subject&, TensorVerdict&) const;

  // Whether no operator of the reference computed it.
  [[nodiscard]] bool is_given(const TensorId& id) const {
    return id.kind == Kind::kData || options_.given.contains(id);
  }
  [[nodiscard]] TensorVerdict judge_pair(const Match& match,
                                         const std::optional<Tolerance>& tolerance) const;
  [[nodiscard]] TensorVerdict judge_recomputed(const Match& match) const;
  // Of what both programs record, whichever side has it.
  [[nodiscard]] TensorVerdict judge_sides(std::size_t index,
                                          const std::optional<Tolerance>& tolerance) const;
  // A tensor that one side did not record.
  [[nodiscard]] TensorVerdict missing(const Match& match) const;

  // Merges both sides and checks their structure. Returns nothing if they cannot be compared;
  // `verdict` says why.
  [[nodiscard]] std::optional<Subject> prepare(const Match& match,
                                               const std::optional<Tolerance>& tolerance,
                                               TensorVerdict& verdict) const;
  // Sums both sides of the subject.
  void sum(Subject& subject) const;
  // Puts what is in the order of the candidate's choices of experts into the reference's.
  void follow_choices(Subject& subject) const;
  void ask_recompute(const Match& match, TensorVerdict& verdict) const;

  // Questions about values. Each adds its checks to the verdict.
  void ask_routing(const Subject& subject, TensorVerdict& verdict) const;
  void ask_finite(const Subject& subject, TensorVerdict& verdict) const;
  void ask_cast(const Subject& subject, TensorVerdict& verdict) const;
  void ask_dyadic(const Subject& subject, TensorVerdict& verdict) const;
  void ask_tolerance(const Subject& subject, TensorVerdict& verdict) const;
  void ask_whole(const Subject& subject, TensorVerdict& verdict) const;
  void ask_parts(const Subject& subject, TensorVerdict& verdict) const;
  void ask_operators(const Subject& subject, TensorVerdict& verdict) const;
  void ask_golden(const Subject& subject, TensorVerdict& verdict) const;
  void ask_codes(const Subject& subject, TensorVerdict& verdict) const;

  [[nodiscard]] std::vector<Ask> questions(const TensorId& id) const;
  // A scale that differs by a power of two and changes no code is harmless.
  void excuse_scale(const Match& match, TensorVerdict& verdict) const;

  std::span<const Match> matches_;
  const Bounds& bounds_;
  SelfCheck self_check_;
  JudgeOptions options_;
};

}  // namespace ttrace
