#include "blueprint.h"

#include "error.h"
#include "stage_layers.h"

namespace megatron_mini {

Blueprint Blueprint::of_layer(std::int64_t number) const {
  Blueprint result = *this;
  result.parallel.is_redundant =
      !layer_tp.empty() && layer_tp.at(static_cast<std::size_t>(number)) < parallel.tp.size;
  return result;
}

void check_divisible(const ModelConfig& model, const Parallel& parallel) {
  check_stages(model.layers, parallel);
  const int tp = parallel.tp.size;
  const auto check = [tp](const char* name, std::int64_t size) {
    require<UsageError>(size % tp == 0, "--tp ", tp, " does not divide ", name, " ", size);
  };
  check("heads", model.heads);
  if (model.experts > 1) {
    check("shared_expert", model.shared_expert);
    require<UsageError>(model.ffn % parallel.etp.size == 0,
                        "--etp ",
                        parallel.etp.size,
                        " does not divide ffn ",
                        model.ffn);
  } else {
    check("ffn", model.ffn);
  }
  require<UsageError>(model.query_groups % tp == 0 || tp % model.query_groups == 0,
                      "--tp ",
                      tp,
                      " is neither a divisor nor a multiple of query_groups ",
                      model.query_groups);
  check("the rows of linear_qkv,", (model.heads + 2 * model.query_groups) * model.head_size());
  const int cp = parallel.cp.size;
  require<UsageError>(cp == 1 || model.sequence % (2 * cp) == 0,
                      "--cp ",
                      cp,
                      " needs a sequence that is a multiple of ",
                      2 * cp,
                      ", not ",
                      model.sequence);
  if (parallel.sequence_parallel) {
    check(cp == 1 ? "sequence" : "the rows of the sequence that --cp leaves to a rank,",
          model.sequence / cp);
  }
}

}  // namespace megatron_mini
