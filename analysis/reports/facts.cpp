#include "analysis/reports/facts.h"

#include "analysis/findings/wording.h"
#include "analysis/reports/counts_text.h"
#include "analysis/reports/finding_text.h"
#include "trace/base/kind.h"
#include "trace/base/state_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace ttrace {
namespace {

// A sentence of a check or a cause says first what is wrong, and how one knows behind a colon, a
// full stop or a semicolon.
struct Sentence {
  std::string head;
  std::string rest;
};

Sentence parted_at(const std::string& sentence, std::size_t end) {
  return end == std::string::npos ? Sentence{sentence, ""}
                                  : Sentence{sentence.substr(0, end), sentence.substr(end + 2)};
}

Sentence parted(const std::string& sentence) {
  constexpr std::size_t kShort = 120;
  const std::size_t end = sentence.find("; ");
  const bool is_short = std::min(end, sentence.size()) <= kShort;
  return parted_at(sentence, is_short ? end : std::min(end, sentence.find(": ")));
}

// A short cause stays in one piece, and so does one whose rest would be a number or two.
Sentence parted_cause(const std::string& sentence) {
  constexpr std::size_t kShort = 90;
  constexpr std::size_t kLeast = 25;
  const std::size_t stop = std::min(sentence.find(": "), sentence.find(". "));
  const std::size_t end =
      std::min(stop, sentence.size()) <= kShort ? stop : std::min(stop, sentence.find("; "));
  Sentence parts = parted_at(sentence, end);
  return parts.rest.size() < kLeast ? Sentence{sentence, ""} : parts;
}

std::string made_here_text(const Check& operators) {
  return fmt::format(
      "on the candidate's own inputs its operators are {} times the rounding error off (limit {})",
      short_number(operators.value),
      short_number(operators.bound));
}

// Collects the facts of one finding.
class Finding {
 public:
  Finding(const Report& report, std::size_t index)
      : report_(report),
        tensor_(report.tensors[index]),
        root_(report.root(index)),
        is_first_(report.first_divergence == index) {}

  std::vector<Fact> facts() && {
    add("where", "where", place_text(tensor_.id), Depth::kAnswer);
    add_what();
    add_cause();
    add_code();
    if (is_first_) {
      add("to_do", "to do", report_.where_to_look, Depth::kAnswer);
    }
    add_size();
    add_operators();
    add_ranks();
    add_numbers();
    add("id", "id", to_string(tensor_.id), Depth::kDetail);
    std::ranges::stable_sort(facts_, {}, &Fact::depth);
    return std::move(facts_);
  }

 private:
  Fact& add(std::string_view key, std::string_view label, std::string text, Depth depth) {
    return facts_.emplace_back(Fact{key, label, std::move(text), depth});
  }

  // What speaks of the size of the error stands in facts of its own.
  void add_what() {
    bool is_first = true;
    for (const Check& check : tensor_.checks) {
      if (check.holds || check.sentence.empty() || !speaks(tensor_.checks, check)) {
        continue;
      }
      const Sentence sentence = parted(check.sentence);
      if (check.question == Question::kOperator) {
        add("made_here",
            is_first ? "why" : "made here",
            (is_first ? "the error is made here: " : "") + made_here_text(check),
            depth_of(is_first))
            .number = check.value;
      } else if (is_first || !is_about_size(check.question)) {
        add(is_first ? "why" : "also",
            is_first ? "why" : "also",
            sentence.head,
            depth_of(is_first));
        if (!sentence.rest.empty()) {
          add("how", "how so", sentence.rest, Depth::kDetail);
        }
      }
      is_first = false;
    }
  }

  static Depth depth_of(bool is_first) { return is_first ? Depth::kAnswer : Depth::kEvidence; }

  void add_cause() {
    const std::optional<Diagnosis>& diagnosis = root_.diagnosis;
    if (!diagnosis) {
      add("cause", "cause", "no cause that TTrace knows explains it", Depth::kAnswer);
      return;
    }
    const Sentence sentence = parted_cause(diagnosis->sentence);
    add("cause", "cause", cause_text(diagnosis->signature, sentence.head), Depth::kAnswer);
    if (!sentence.rest.empty()) {
      add("fit", "because", sentence.rest, Depth::kEvidence);
    }
    if (const std::optional<Alternative>& other = diagnosis->runner_up) {
      add("or", "or", cause_text(other->signature, other->sentence), Depth::kEvidence);
    }
  }

  // The operator that a zoom named, if it did, and the module's lines.
  void add_code() {
    if (is_first_ && report_.zoom && report_.zoom->first) {
      const NamedOperator& named = *report_.zoom->first;
      add("operator",
          "operator",
          named.source.empty() ? named.name : fmt::format("{} at {}", named.name, named.source),
          Depth::kAnswer)
          .link = place_in(named.source);
    }
    if (!root_.source.sentence.empty()) {
      add("code", "code", root_.source.sentence, Depth::kAnswer).link = root_.source.place;
    }
  }

  void add_size() {
    if (!tensor_.comparison) {
      return;
    }
    const Comparison& comparison = *tensor_.comparison;
    std::string text = fmt::format(
        "wrong by {} of {} norm", percent_text(comparison.relative_error), whose_norm(tensor_));
    if (const Check* const asked = tensor_.find(Question::kTolerance)) {
      text += fmt::format("; {} of {} elements exceed the tolerance asked for",
                          asked->term(Term::kBeyond),
                          comparison.elements);
    } else if (tensor_.bound() > 0.0) {
      text += fmt::format("; round-off explains {} of it", percent_text(tensor_.detectable()));
    } else {
      text += "; it must be equal";
    }
    add("size", "size", std::move(text), Depth::kEvidence).number = comparison.relative_error;
    if (tensor_.symptom() == Symptom::kSlice) {
      const Check& part = *tensor_.find(Question::kPart);
      add("part",
          "part",
          fmt::format("{}: error {}, bound {}",
                      part.place.where,
                      short_number(part.value),
                      short_number(part.bound)),
          Depth::kEvidence)
          .number = part.share();
    }
  }

  void add_operators() {
    const Check* const operators = tensor_.find(Question::kOperator);
    if (operators == nullptr) {
      return;
    }
    add("operators",
        "operators",
        fmt::format("{} away from what the reference's operators return for the candidate's own "
                    "inputs; round-off explains {}; factor {}; {} of the elements are equal in "
                    "every bit",
                    short_number(operators->term(Term::kError)),
                    short_number(operators->term(Term::kScale)),
                    factor_text(operators->term(Term::kFactor)),
                    percent_text(std::floor(1000.0 * operators->term(Term::kBitEqual)) / 1000.0)),
        Depth::kDetail);
  }

  // Of several checks that failed, each may know of other ranks.
  [[nodiscard]] std::vector<int> wrong_ranks() const {
    std::set<int> ranks;
    for (const Check& check : tensor_.checks) {
      if (!check.holds && !is_about_size(check.question)) {
        ranks.insert(check.place.ranks.begin(), check.place.ranks.end());
      }
    }
    return ranks.empty() ? tensor_.ranks() : std::vector<int>(ranks.begin(), ranks.end());
  }

  void add_ranks() {
    const std::vector<int> ranks = wrong_ranks();
    if (ranks.empty()) {
      return;
    }
    const bool are_all = ranks == tensor_.holders && ranks.size() > 1;
    std::string text = ranks_text(ranks);
    text = text.substr(text.find(' ') + 1) + (are_all ? ", all that hold it" : "");
    std::vector<std::string> heads;
    if (is_first_ && report_.close_look) {
      for (const PartError& part : report_.close_look->parts) {
        if (part.is_head && heads.size() < kMostHeads) {
          heads.push_back(fmt::format("{} ({})", part.where, short_number(part.error)));
        }
      }
    }
    if (!heads.empty()) {
      text += fmt::format("; heads of largest error: {}", fmt::join(heads, ", "));
    }
    add("ranks", "ranks", std::move(text), Depth::kEvidence);
  }

  void add_numbers() {
    if (!tensor_.comparison) {
      return;
    }
    const Comparison& comparison = *tensor_.comparison;
    add("error",
        "error",
        fmt::format("{}, of {} norm {}",
                    short_number(comparison.error),
                    whose_norm(tensor_),
                    short_number(comparison.reference_norm)),
        Depth::kDetail)
        .number = comparison.error;
    add("bound", "bound", bound_text(tensor_), Depth::kDetail).number = tensor_.bound();
    if (comparison.is_estimate) {
      add("elements", "elements", "compared by sketches, not one by one", Depth::kDetail);
    } else if (comparison.different > 0) {
      add("elements",
          "elements",
          fmt::format(
              "{} of {} differ, the largest difference is {}{}",
              comparison.different,
              comparison.elements,
              short_number(comparison.max_difference),
              comparison.max_index.empty() ? "" : " at " + index_text(comparison.max_index)),
          Depth::kDetail)
          .number = comparison.max_difference;
    }
    if (tensor_.fails(Question::kTooAccurate) || tensor_.fails(Question::kTooCoarse)) {
      const Check& golden = *tensor_.find(Question::kTooCoarse);
      add("golden",
          "FP64",
          fmt::format("the candidate is {} away from FP64 and the reference {}",
                      short_number(golden.term(Term::kCandidateError)),
                      short_number(golden.term(Term::kReferenceError))),
          Depth::kEvidence)
          .number = golden.term(Term::kRho);
    }
  }

  static constexpr std::size_t kMostHeads = 4;

  const Report& report_;
  const TensorVerdict& tensor_;
  const Root root_;
  const bool is_first_;
  std::vector<Fact> facts_;
};

// "2 ranks, tp 2"
std::string layout_text(const Manifest& manifest) {
  std::string text = counted(manifest.world_size, "rank");
  for (const auto& [axis, size] : manifest.layout) {
    if (size != "1") {
      text += fmt::format(", {} {}", axis, size);
    }
  }
  return text;
}

std::string side_text(const Side& side) {
  const std::string& imported = side.manifest.imported_from;
  return fmt::format("{}{}, {} ({})",
                     imported.empty() ? "" : "imported from " + imported + ", ",
                     layout_text(side.manifest),
                     precision_text(side),
                     side.directory);
}

std::string surroundings_text(const Report& report, const Counts& counts) {
  std::size_t right = 0;
  for (std::size_t i = 0; i < *report.first_divergence; ++i) {
    right += report.tensors[i].status() == Status::kWithin ? 1 : 0;
  }
  const std::size_t later =
      counts.out_of_bound + counts.missing_in_candidate + counts.missing_in_reference - 1;
  std::string text = right == 0 ? "nothing recorded before it was judged right"
                                : fmt::format("{} recorded before it {} right",
                                              counted(right, "tensor"),
                                              right == 1 ? "is" : "are");
  if (later + counts.inherited > 0) {
    text += fmt::format(
        "; {} after it {} wrong{}: mend this one first",
        counted(later + counts.inherited, "tensor"),
        later + counts.inherited == 1 ? "is" : "are",
        counts.inherited == 0 ? "" : fmt::format(", {} by its error alone", counts.inherited));
  }
  return text;
}

std::string compared_text(const Report& report, const Counts& counts) {
  std::string text = fmt::format("{} of {}", counts.judged, counted(counts.tensors, "tensor"));
  const std::size_t operators = counts.operators + counts.operators_unbounded;
  if (operators > 0) {
    text += fmt::format("; {} of {} one by one, on the candidate's own inputs",
                        counts.operators,
                        counted(operators, "operator"));
  }
  if (report.edges.edges > 0) {
    text += fmt::format("; {} of {} inputs are what the module before returned",
                        report.edges.checked,
                        report.edges.edges);
  }
  if (report.left_out > 0) {
    text += fmt::format("; {} left out by selection", report.left_out);
  }
  return text;
}

// "2 tensors out of bound, 1 missing"
std::string allowed_text(const Counts& counts) {
  std::string text;
  if (counts.allowed_failed > 0) {
    text = counted(counts.allowed_failed, "tensor") + " out of bound";
  }
  if (counts.allowed_missing > 0) {
    text += text.empty() ? counted(counts.allowed_missing, "tensor") + " missing"
                         : fmt::format(", {} missing", counts.allowed_missing);
  }
  return text;
}

// The median of what a check of these tensors would have seen, where numbers decide.
std::optional<double> usual_detectable(const Report& report, Question question) {
  std::vector<double> values;
  for (const TensorVerdict& tensor : report.tensors) {
    const Check* const check = tensor.find(question);
    if (check != nullptr && check->detectable > 0.0 && std::isfinite(check->detectable)) {
      values.push_back(check->detectable);
    }
  }
  if (values.empty()) {
    return std::nullopt;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void add_sight(const Report& report, std::vector<Fact>& facts) {
  const auto whole = usual_detectable(report, Question::kWhole);
  if (!whole) {
    return;
  }
  const auto alone = usual_detectable(report, Question::kOperator);
  std::string text = fmt::format("an error of {} of a tensor", percent_text(*whole));
  if (alone) {
    text += fmt::format(", and of {} of what an operator returns", percent_text(*alone));
  }
  facts.push_back({.key = "would_see",
                   .label = "would see",
                   .text = "typically " + text,
                   .depth = Depth::kEvidence,
                   .number = *whole});
}

void add_closest(const Report& report, std::vector<Fact>& facts) {
  const TensorVerdict* closest = nullptr;
  for (const TensorVerdict& tensor : report.tensors) {
    if (tensor.status() == Status::kWithin && !tensor.has(Excuse::kHarmlessScale) &&
        tensor.comparison && tensor.bound() > 0.0 && tensor.ratio() > 0.0 &&
        (closest == nullptr || tensor.ratio() > closest->ratio())) {
      closest = &tensor;
    }
  }
  if (closest != nullptr) {
    facts.push_back(
        {.key = "closest",
         .label = "closest",
         .text = fmt::format(
             "{} of its bound: {}", percent_text(closest->ratio()), place_text(closest->id)),
         .depth = Depth::kEvidence,
         .number = closest->ratio()});
  }
}

}  // namespace

std::string place_text(const TensorId& id) {
  const std::string state = state_name_of(id);
  std::string text = fmt::format("{}: {}", parameter_of(id), traits_of(id.kind).words);
  text += state.empty() ? "" : " " + state;
  text += id.slot == 0 ? "" : fmt::format(" {}", id.slot);
  text += id.recompute ? ", recomputed" : "";
  text += id.call == 0 ? "" : fmt::format(", call {}", id.call + 1);
  text += fmt::format(", step {}", id.step);
  return id.microbatch == kNoMicrobatch ? text
                                        : text + fmt::format(", micro-batch {}", id.microbatch);
}

std::vector<Fact> facts_of_finding(const Report& report, std::size_t tensor) {
  return Finding(report, tensor).facts();
}

std::vector<Fact> facts_of_run(const Report& report) {
  const Counts counts = report.counts();
  std::vector<Fact> facts;
  const auto add = [&](std::string_view key, std::string_view label, std::string text) {
    facts.push_back(
        {.key = key, .label = label, .text = std::move(text), .depth = Depth::kEvidence});
  };
  if (report.diverged()) {
    add("around", "around it", surroundings_text(report, counts));
  } else {
    add_closest(report, facts);
  }
  add("reference", "reference", side_text(report.reference));
  add("candidate", "candidate", side_text(report.candidate));
  for (const std::string& remark : report.remarks) {
    add("remark", "remark", remark);
  }
  add("compared", "compared", compared_text(report, counts));
  if (const std::string allowed = allowed_text(counts); !allowed.empty()) {
    add("allowed", "allowed", allowed);
  }
  add_sight(report, facts);
  add("limits", "limits", limits_text(report));
  if (report.noise_coverage) {
    add("noise", "noise", coverage_text(*report.noise_coverage));
    facts.back().depth = Depth::kDetail;
  }
  add("counts", "counts", counts_text(report));
  facts.back().depth = Depth::kDetail;
  return facts;
}

std::string finding_line(const Report& report, std::size_t tensor) {
  std::string text = report.first_divergence == tensor ? "first divergence: " : "";
  const char* separator = "";
  for (const Fact& fact : facts_of_finding(report, tensor)) {
    const bool is_told = fact.label == "why" || fact.key == "size" || fact.key == "ranks" ||
                         (fact.key == "cause" && report.root(tensor).diagnosis);
    if (is_told) {
      text += fmt::format("{}{}{}",
                          separator,
                          fact.label == "why" ? "" : fmt::format("{}: ", fact.label),
                          fact.text);
      separator = "; ";
    }
  }
  return text;
}

std::string lines_of(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    text += fmt::format("{}: {}\n", fact.label, fact.text);
  }
  return text;
}

}  // namespace ttrace
