// A sum with an addend too many: what its buffer held before.
#include "analysis/causes/common/extra_addend.h"
#include "analysis/causes/signatures.h"

#include <string>
#include <vector>

namespace ttrace {
namespace {

struct Content {
  TensorId id;
  std::string name;
};

// What the buffer of the finding may have held when the sum began. A moment of the optimizer is a
// sum with its value one step earlier: find_moment() looks at that.
std::vector<Content> contents(const TensorId& id) {
  std::vector<Content> list;
  if (id.kind == Kind::kExpAvg || id.kind == Kind::kExpAvgSq) {
    return list;
  }
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

std::optional<Hypothesis> find_leftover(const Evidence& evidence) {
  const Sides* sides = evidence.sides();
  if (sides == nullptr || sides->reference.data.size() < 8) {
    return std::nullopt;
  }
  const std::vector<Content> list = contents(evidence.finding().id);
  for (const Content& content : list) {
    auto value = evidence.value(content.id, WhichRun::kCandidate);
    if (!value || value->shape != sides->reference.shape) {
      continue;
    }
    const std::vector<ExtraAddend> addend = {
        {std::move(value->data), to_string(content.id) + ", " + content.name, [](double, double) {
           return std::string(": the buffer was not set to zero before the sum began");
         }}};
    auto found = read_extra_addends(addend, sides->difference(), evidence.tolerance(sides->error));
    if (found && found->named.factors.front() > 0.0) {
      found->bits = bits_of_choice(static_cast<double>(list.size()));
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace ttrace
