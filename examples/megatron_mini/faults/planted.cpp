#include "planted.h"

#include "../error.h"
#include "../plain_parts.h"
#include "bug_tables.h"

#include <algorithm>

namespace megatron_mini::faults {

namespace {

const Bug* find_in_tables(const std::string& name) {
  for (const auto& table : {attention_bugs(),
                            clipping_bugs(),
                            expert_bugs(),
                            fp8_bugs(),
                            gradient_bugs(),
                            linear_bugs(),
                            model_bugs(),
                            norm_bugs(),
                            optimizer_bugs(),
                            reduction_bugs(),
                            ring_bugs(),
                            router_bugs(),
                            trainer_bugs()}) {
    const auto found =
        std::find_if(table.begin(), table.end(), [&](const Bug& bug) { return bug.name == name; });
    if (found != table.end()) {
      return &*found;
    }
  }
  return nullptr;
}

}  // namespace

void check_can_act(const Choice& choice, const RunFacts& run, const ModelConfig& model) {
  require<UsageError>(holds(choice.bug_needs, run),
                      "bug `",
                      choice.bug,
                      "` cannot act in this run; it needs ",
                      choice.bug_needs);
  choice.mutant.check_can_act(model, static_cast<int>(run.at("tp")), run.at("sp") != 0);
}

Parts parts_with_bug(const std::string& name, std::optional<double> size) {
  const Bug* const bug = find_in_tables(name);
  require<InternalError>(bug != nullptr, "bug `", name, "` is in no table of faults/");
  Parts parts = plain_parts();
  bug->plant(parts, Size(size));
  return parts;
}

Parts parts_with(const Choice& choice) {
  Parts parts = choice.bug.empty() ? plain_parts() : parts_with_bug(choice.bug, choice.bug_size);
  choice.mutant.plant(parts);
  return parts;
}

}  // namespace megatron_mini::faults
