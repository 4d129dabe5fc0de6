// Bugs of the optimizer, and of how its updates come to other ranks.
#include "../mixed_precision_optimizer.h"
#include "../parameter_gather.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <string>
#include <vector>

namespace megatron_mini::faults {

namespace {

void leave_experts_out(Parts& parts, const Size& /*size*/) {
  parts.optimizer = [before = parts.optimizer](const std::vector<ModelParameter>& parameters,
                                               const std::vector<OwnedPart>& all,
                                               const std::vector<at::Tensor>& all_gradients,
                                               const OptimizerConfig& config) {
    std::vector<OwnedPart> owned;
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_of_expert(parameters[all[i].parameter].role)) {
        owned.push_back(all[i]);
        gradients.push_back(all_gradients[i]);
      }
    }
    return before(parameters, owned, gradients, config);
  };
}

// One weight's master is updated, but the weight keeps its old value.
class LeavesOneWeightStale : public MixedPrecisionOptimizer {
 public:
  using MixedPrecisionOptimizer::MixedPrecisionOptimizer;

 protected:
  void write_back(std::size_t part) override {
    if (path_of(part) != "decoder.layers.1.mlp.linear_fc1.weight") {
      MixedPrecisionOptimizer::write_back(part);
    }
  }
};

// What arrives is not copied to the parameters.
class DropsWhatArrives : public ParameterGather {
 public:
  using ParameterGather::ParameterGather;

 protected:
  void hand_out(std::size_t /*bucket*/, const at::Tensor& /*gathered*/) override {}
};

// Layer 1 waits for the buckets of layer 0.
class WaitsForLayerBefore : public ParameterGather {
 public:
  using ParameterGather::ParameterGather;

 protected:
  void wait_for(const std::string& module) override {
    ParameterGather::wait_for(module == "decoder.layers.1" ? "decoder.layers.0" : module);
  }
};

constexpr Bug kOptimizerBugs[] = {
    {"experts-not-in-optimizer", leave_experts_out},
    {"stale-parameter", everywhere<&Parts::optimizer, LeavesOneWeightStale>},
    {"gathered-parameters-dropped", everywhere<&Parts::gather, DropsWhatArrives>},
    {"gather-of-wrong-bucket-awaited", everywhere<&Parts::gather, WaitsForLayerBefore>},
};

}  // namespace

std::span<const Bug> optimizer_bugs() {
  return kOptimizerBugs;
}

}  // namespace megatron_mini::faults
