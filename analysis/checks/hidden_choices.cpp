#include "analysis/checks/hidden_choices.h"

#include "analysis/align/producers.h"

namespace ttrace {

HiddenChoices::HiddenChoices(const Trace& reference, const Trace& candidate)
    : reference_(reference.manifest().roles), candidate_(candidate.manifest().roles) {
  if (!reference_.has(Role::kHiddenChoices) && !candidate_.has(Role::kHiddenChoices)) {
    return;  // nearly every program, and the edges of a large trace are many
  }
  for (const Trace* trace : {&reference, &candidate}) {
    for (const auto& [input, producers] : RecordedProducers(*trace)) {
      if (!hides(input.path)) {
        continue;
      }
      for (const auto& [rank, producer] : producers) {
        taken_.insert(producer.path);
      }
    }
  }
}

bool HiddenChoices::made(const TensorId& id) const {
  switch (id.kind) {
    case Kind::kGradOutput:  // which the backward of the modules after it computed
      return taken_.contains(id.path);
    case Kind::kOutput:
    case Kind::kGradInput:
    case Kind::kParamGrad:
    case Kind::kMainGrad:
      return hides(id.path);
    default:
      return false;
  }
}

bool HiddenChoices::hides(std::string_view path) const {
  return reference_.is(Role::kHiddenChoices, path) || candidate_.is(Role::kHiddenChoices, path);
}

}  // namespace ttrace
