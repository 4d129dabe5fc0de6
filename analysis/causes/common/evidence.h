// What a hypothesis may look at: the finding, the records near it, and the candidate's layout.
//
// Thread-safety: immutable after construction; read from one thread (tensors are merged on
// demand).
#pragma once

#include "analysis/align/matching.h"
#include "analysis/align/model_vocabulary.h"
#include "analysis/align/module_path.h"
#include "analysis/align/producers.h"
#include "analysis/align/values.h"
#include "analysis/findings/report.h"
#include "trace/file/manifest.h"
#include "trace/file/trace_reader.h"

#include <ttrace/layout.h>
#include <ttrace/tensor_id.h>

#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttrace {

// Which of the two runs a value is taken from.
enum class WhichRun : std::uint8_t { kReference, kCandidate };

// Two tensors of one shape: the finding's sides, whole and finite, or what a rank holds of them.
struct Sides {
  Sides(Values r, Values c);

  Values reference;
  Values candidate;
  double error = 0.0;  // ||c - r||

  [[nodiscard]] std::vector<double> difference() const;  // c - r
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return reference.shape; }
  [[nodiscard]] std::size_t size() const { return reference.data.size(); }
};

// What one rank holds, next to what the reference has there.
struct RankPart {
  const Shard* shard = nullptr;
  Sides sides;

  [[nodiscard]] int rank() const { return shard->rank; }
};

// One part for every shard; none where one of them is an addend, or is no part of a tensor like
// this.
[[nodiscard]] std::vector<RankPart> rank_parts(const std::vector<Shard>& shards,
                                               const Values& reference);

// What an explanation may leave of `error` where round-off explains `bound`: twice the bound,
// because an explanation from values that went through an error carries noise of its own, but at
// most half of the error; or 5 % of the error.
[[nodiscard]] double allowed_rest(double error, double bound);

// Whether a formula is what a program computes, by what its result, of norm `norm`, differs from
// the record. Two operands that are rounded to E4M3 (2^-4 / sqrt(3) each) leave 5 % of a product;
// values that have nothing to do with each other leave 140 %.
[[nodiscard]] bool reproduces(double rest, double norm);

// Whether ranks of the candidate hold copies of one part that are not equal. A finding may have
// been found by its operators first; its symptom says nothing of its copies then.
[[nodiscard]] bool copies_differ(const Match& match);

class Evidence {
 public:
  // Keeps references. `finding` is one of `matches`.
  Evidence(std::span<const Match> matches, const TensorVerdict& finding, const Trace& candidate);

  [[nodiscard]] const TensorVerdict& finding() const { return finding_; }
  // Largest error that round-off explains, by the tier that has found it; 0 where none is known.
  [[nodiscard]] double bound() const;
  // The part of bound() that is one round-off, as noise or forced passes show it; 0: not known.
  [[nodiscard]] double round_off_share() const;
  [[nodiscard]] const Match& match() const { return *match_; }
  [[nodiscard]] bool copies_differ() const { return ttrace::copies_differ(*match_); }
  // Null where neither side recorded it.
  [[nodiscard]] const Match* find(const TensorId& id) const;
  // All records that there are to look at, of every step, in the reference's order.
  [[nodiscard]] std::span<const Match> matches() const { return matches_; }
  // Those of the finding's step that have this kind.
  [[nodiscard]] auto records(Kind kind) const {
    return matches_ | std::views::filter([this, kind](const Match& match) {
             return match.id.step == finding_.id.step && match.id.kind == kind;
           });
  }

  // The record of the finding's place that has another kind.
  [[nodiscard]] const Match* with_kind(Kind kind) const { return find(as_kind(finding_.id, kind)); }

  // Logical tensors; nothing where there is no such record, where it is not whole, or where NaN and
  // Inf are in it.
  [[nodiscard]] static std::optional<Values> value(const Match* match, WhichRun run);
  [[nodiscard]] std::optional<Values> value(const TensorId& id, WhichRun run) const {
    return value(find(id), run);
  }
  [[nodiscard]] static std::optional<Values> reference(const Match* match) {
    return value(match, WhichRun::kReference);
  }
  [[nodiscard]] static std::optional<Values> candidate(const Match* match) {
    return value(match, WhichRun::kCandidate);
  }

  // The output that some rank's module took as `input`, as the candidate recorded it; null where
  // nothing is known of that.
  [[nodiscard]] const TensorId* producer_of(const TensorId& input) const;

  // Null where the finding cannot be laid side by side, or is within its bound there. Of copies
  // that disagree, the one farthest from the reference.
  [[nodiscard]] const Sides* sides() const { return sides_ ? &*sides_ : nullptr; }
  // What an explanation may leave of an error: allowed_rest(), of the error or of the candidate's
  // own norm, whichever is smaller, because a candidate near zero is near a small multiple of
  // everything.
  [[nodiscard]] double tolerance(double error) const;
  [[nodiscard]] bool explains(double rest) const { return rest <= tolerance(sides_->error); }

  // The axes of the candidate in the finding's step, where all ranks have the same; none where no
  // rank recorded that step. Axes that follow another are left out, and axes of size 1.
  [[nodiscard]] std::vector<std::string> axes() const;
  [[nodiscard]] const Layout& layout(int rank) const;
  [[nodiscard]] int axis_size(const std::string& axis) const;
  // Number of micro-batches of the finding's step, over all ranks.
  [[nodiscard]] int microbatches() const;
  // How the candidate calls things.
  [[nodiscard]] const ModelVocabulary& vocabulary() const { return vocabulary_; }
  // What the finding's step has of this role, `microbatch` of the data; null where there is none.
  [[nodiscard]] const Match* data(Role role, std::int64_t microbatch) const;
  // What the reference's data have, [b, s] or [s, b], by row of a tensor of `shape`, [s, b, ...];
  // nothing where that has another size.
  [[nodiscard]] std::optional<std::vector<double>> data_by_row(
      Role role, std::int64_t microbatch, std::span<const std::int64_t> shape) const;
  // What the programs say of their model; see model_numbers.h.
  [[nodiscard]] std::optional<double> model_number(std::string_view key) const;

 private:
  [[nodiscard]] std::optional<Sides> lay_side_by_side() const;

  std::span<const Match> matches_;
  const TensorVerdict& finding_;
  const Manifest& manifest_;  // of the candidate; the model is the reference's too
  ModelVocabulary vocabulary_;
  RecordedProducers producers_;
  std::map<int, const Layout*> layouts_;  // of the candidate's ranks in that step
  std::map<TensorId, const Match*> by_id_;
  const Match* match_ = nullptr;
  std::optional<Sides> sides_;
};

}  // namespace ttrace
