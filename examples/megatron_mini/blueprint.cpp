#include "blueprint.h"

#include "error.h"
#include "stage_layers.h"

namespace megatron_mini {

Blueprint Blueprint::of_layer(std::int64_t number) const {
  Blueprint result = *this;
  const int degree =
      layer_tp.empty() ? parallel.tp.size : layer_tp.at(static_cast<std::size_t>(number));
  const auto ranks = parallel.layers.find(degree);
  if (ranks != parallel.layers.end()) {
    result.parallel.own = ranks->second;
    result.parallel.tp = ranks->second.tp;
    result.parallel.dp_cp = ranks->second.dp_cp;
  } else {
    result.parallel.is_redundant = degree < parallel.tp.size;
  }
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

void check_layers(const Blueprint& blueprint, std::int64_t micro_batch_size) {
  const ModelConfig& model = blueprint.model;
  const Parallel& parallel = blueprint.parallel;
  for (const auto& [degree, ranks] : parallel.layers) {
    require<UsageError>(micro_batch_size % ranks.samples.size == 0,
                        "--layer-tp ",
                        degree,
                        " leaves ",
                        ranks.samples.size,
                        " ranks to divide micro_batch_size ",
                        micro_batch_size,
                        ", which is no multiple of them");
    require<UsageError>(model.query_groups % degree == 0 || degree % model.query_groups == 0,
                        "--layer-tp ",
                        degree,
                        " is neither a divisor nor a multiple of query_groups ",
                        model.query_groups);
  }
  require<UsageError>(parallel.layers.empty() || model.experts == 1,
                      "--layer-dp with model.experts ",
                      model.experts,
                      " is not implemented; use experts 1");
  // What stages send each other is recorded under the layer that made it, and lies as its tensors.
  for (int chunk = 0; chunk < parallel.chunks; ++chunk) {
    const LayerRange range = layers_of(model.layers, parallel, chunk);
    const std::int64_t last = range.first + range.count - 1;
    require<UsageError>(parallel.ends(chunk) || !blueprint.of_layer(last).parallel.own,
                        "layer ",
                        last,
                        " is the last one of a pipeline stage, so that with --layer-dp it needs "
                        "the degree --tp ",
                        parallel.tp.size);
  }
}

}  // namespace megatron_mini
