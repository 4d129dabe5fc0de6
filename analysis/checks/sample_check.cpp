#include "analysis/checks/sample_check.h"

#include "analysis/checks/dealt_rows.h"

namespace ttrace {

std::vector<Check> sample_checks(const SampleAlignment& samples, const TensorId& id) {
  std::vector<Check> checks;
  for (const SampleFinding& finding : samples.findings) {
    if (finding.id == id) {
      checks.push_back(failed(Question::kRows, finding.sentence, finding.ranks));
    }
  }
  return checks;
}

bool lacks_place(const SampleAlignment* samples, const Match& match) {
  if (samples == nullptr || has_dealt_rows(match)) {
    return has_dealt_rows(match);
  }
  if (!samples->is_unaligned(match.id)) {
    return match.candidate.empty() && samples->lacks(match.id);
  }
  return !samples->is_data(match.id) || match.candidate.empty() || match.reference.empty();
}

bool sums_other_samples(const SampleAlignment& samples, const TensorId& id) {
  return id.kind == Kind::kMainGrad && samples.has_other_sums(id.step);
}

}  // namespace ttrace
