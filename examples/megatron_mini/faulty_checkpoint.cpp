#include "faulty_checkpoint.h"

#include <ATen/ATen.h>

#include <string>

namespace megatron_mini {

void save_and_load(const std::vector<ModelParameter>& parameters, const Group& tp) {
  for (const auto& parameter : parameters) {
    if (parameter.path.find(".mlp.linear_fc1.") == std::string::npos) {
      continue;  // comes back as it was
    }
    const at::Tensor saved = all_gather(parameter.tensor.detach(), tp);
    const auto gates = saved.size(0) / 2;
    const auto share = gates / tp.size;
    parameter.tensor.detach().copy_(at::cat({saved.narrow(0, share * tp.rank, share),
                                             saved.narrow(0, gates + share * tp.rank, share)}));
  }
}

}  // namespace megatron_mini
