#include "trace/samples/align_samples.h"

#include "trace/samples/data_rows.h"
#include "trace/samples/deal_samples.h"
#include "trace/samples/placed_records.h"
#include "trace/samples/sample_text.h"

#include <algorithm>
#include <map>

namespace ttrace {
namespace {

// How many samples each micro-batch has, as far as the records of one side say.
std::map<std::int64_t, std::int64_t> counts_of(const StepTrace& step) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const RankFile& file : step.ranks) {
    for (const Record& record : file.records()) {
      if (record.samples) {
        std::int64_t& count = counts[record.id.microbatch];
        count = std::max(count, record.samples->count);
      }
    }
  }
  return counts;
}

std::set<std::int64_t> microbatches_of(const StepTrace& step) {
  std::set<std::int64_t> microbatches;
  for (const RankFile& file : step.ranks) {
    for (const Record& record : file.records()) {
      if (record.id.microbatch != kNoMicrobatch) {
        microbatches.insert(record.id.microbatch);
      }
    }
  }
  return microbatches;
}

// The reference's tensor of these data in a micro-batch, or of others where it has none of them.
std::optional<TensorId> data_id(const StepTrace& reference,
                                const std::vector<TensorId>& names,
                                std::int64_t microbatch) {
  for (TensorId id : names) {
    id.step = reference.step;
    id.microbatch = microbatch;
    for (const RankFile& file : reference.ranks) {
      if (std::ranges::any_of(file.records(),
                              [&](const Record& record) { return record.id == id; })) {
        return id;
      }
    }
  }
  return std::nullopt;
}

class Aligner {
 public:
  Aligner(const StepTrace& reference, StepTrace& candidate, SampleAlignment& result)
      : reference_(reference), candidate_(candidate), result_(result) {}

  void align() {
    const auto of_reference = counts_of(reference_);
    const auto of_candidate = counts_of(candidate_);
    if (of_reference.empty() || of_candidate.empty()) {
      return;
    }
    const DataRows rows = read_data_rows(reference_, candidate_);
    if (rows.candidate.empty()) {
      if (of_reference != of_candidate) {
        give_up("the programs record no data in common, and cut their steps in different ways");
      }
      return;
    }
    if (rows.are_ranks_apart) {
      return;  // where tensors lie of which nobody said it is found by their values, later
    }
    const DealtSamples dealt(rows);
    if (dealt.is_identity()) {
      return;
    }
    if (dealt.knows_nothing()) {
      give_up("no sample that the candidate reads is one of the reference's");
      return;
    }
    place(rows, dealt);
  }

 private:
  // Nothing says which micro-batch is which.
  void give_up(const std::string& why) {
    for (const std::int64_t microbatch : microbatches_of(reference_)) {
      result_.unaligned.insert({reference_.step, microbatch});
    }
    for (RankFile& file : candidate_.ranks) {
      std::vector<Record> records = file.records();
      std::erase_if(records,
                    [](const Record& record) { return record.id.microbatch != kNoMicrobatch; });
      file.set_records(std::move(records));
      file.set_links({}, {});
    }
    add(result_.unseen, "tensors of single micro-batches were not compared, because " + why);
  }

  void place(const DataRows& rows, const DealtSamples& dealt) {
    for (const TensorId& name : rows.names) {
      if (std::ranges::find(result_.data, name) == result_.data.end()) {
        result_.data.push_back(name);
      }
    }
    for (const std::string& sentence : dealing_sentences(rows, dealt)) {
      add(result_.remarks, sentence);
    }
    for (const std::string& sentence : padding_sentences(rows, dealt)) {
      add(result_.remarks, sentence);
    }
    for (const std::int64_t microbatch : dealt.incomplete()) {
      result_.unaligned.insert({reference_.step, microbatch});
      find(microbatch, rows.names, incomplete_text(microbatch, rows, dealt));
    }
    if (dealt.incomplete().empty()) {
      find(rows.reference.begin()->first, rows.names, unknown_text(rows, dealt));
    }
    std::set<TensorId> left_out = place_records(reference_, dealt, rows, candidate_);
    const auto count = std::ranges::count_if(
        left_out, [&](const TensorId& id) { return !result_.is_unaligned(id); });
    if (count > 0) {
      add(result_.unseen,
          std::to_string(count) + (count == 1 ? " tensor was" : " tensors were") +
              " not compared, because nothing says what each of the reference's samples is in "
              "them, or adds to them");
    }
    result_.left_out.merge(std::move(left_out));
  }

  void find(std::int64_t microbatch,
            const std::vector<TensorId>& names,
            IncompleteText text) const {
    const auto id = data_id(reference_, names, microbatch);
    if (id && !text.sentence.empty()) {
      result_.findings.push_back({*id, std::move(text.ranks), std::move(text.sentence)});
    }
  }

  static void add(std::vector<std::string>& sentences, const std::string& sentence) {
    if (std::ranges::find(sentences, sentence) == sentences.end()) {
      sentences.push_back(sentence);
    }
  }

  const StepTrace& reference_;
  StepTrace& candidate_;
  SampleAlignment& result_;
};

}  // namespace

bool SampleAlignment::is_data(TensorId id) const {
  id.step = 0;
  id.microbatch = kNoMicrobatch;
  return std::ranges::find(data, id) != data.end();
}

bool SampleAlignment::has_other_sums(std::int64_t step) const {
  return unaligned.lower_bound({step, kNoMicrobatch}) !=
             unaligned.lower_bound({step + 1, kNoMicrobatch}) ||
         std::ranges::any_of(findings,
                             [&](const SampleFinding& finding) { return finding.id.step == step; });
}

SampleAlignment align_samples(const Trace& reference, Trace& candidate) {
  SampleAlignment result;
  if (has_dyadic_inputs(candidate.manifest())) {
    return result;  // made-up values follow from the place of a sample, not from the sample
  }
  for (StepTrace& step : candidate.steps()) {
    const auto other = std::ranges::find(reference.steps(), step.step, &StepTrace::step);
    if (other != reference.steps().end() && other->lacking.empty() && step.lacking.empty()) {
      Aligner(*other, step, result).align();
    }
  }
  return result;
}

}  // namespace ttrace
