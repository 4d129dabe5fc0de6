// A sum with an addend too many: what its buffer held before.
#include "analysis/causes/common/least_squares.h"
#include "analysis/causes/signatures.h"
#include "analysis/findings/wording.h"

#include <cmath>
#include <span>
#include <string>
#include <vector>

namespace ttrace {
namespace {

struct Content {
  TensorId id;
  std::string name;
};

// What the buffer of the finding may have held when the sum began.
std::vector<Content> contents(const TensorId& id) {
  std::vector<Content> list;
  TensorId other = id;
  other.step = id.step - 1;
  list.push_back({other, "its value one step earlier"});
  if (id.kind == Kind::kMainGrad || id.kind == Kind::kParamGrad) {
    other = id;
    other.microbatch = kNoMicrobatch;
    other.kind = Kind::kParam;
    list.push_back({other, "the parameter itself"});
  }
  if (id.microbatch > 0) {
    other = id;
    --other.microbatch;
    list.push_back({other, "its value for the micro-batch before"});
  }
  return list;
}

}  // namespace

std::optional<Diagnosis> find_leftover(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr || sides->reference.data.size() < 8) {
    return std::nullopt;
  }
  std::vector<double> target = sides->candidate.data;
  for (std::size_t i = 0; i < target.size(); ++i) {
    target[i] -= sides->reference.data[i];
  }
  for (const Content& content : contents(evidence.finding().id)) {
    const Match* match = evidence.find(content.id);
    const auto value = match == nullptr ? std::nullopt : evidence.candidate(*match);
    if (!value || value->shape != sides->reference.shape) {
      continue;
    }
    const auto found = fit(std::span(&value->data, 1), target);
    if (found && found->residual <= evidence.tolerance(sides->error) &&
        found->coefficients[0] > 0.0) {
      return Diagnosis{Signature::kWrongAddends,
                       "candidate = reference + a x " + to_string(content.id) + ", " +
                           content.name + ", a = " + factor_text(found->coefficients[0]) + " +- " +
                           short_number(found->deviations[0]) +
                           ": the buffer was not set to zero before the sum began"};
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
