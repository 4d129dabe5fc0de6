#include "options.h"

#include "error.h"

#include <cstdint>

namespace megatron_mini {

namespace {

void check_micro_batches(const Options& options, std::int64_t micro_batches) {
  require<UsageError>(micro_batches >= 1 && micro_batches % options.dp == 0,
                      "micro_batches ",
                      micro_batches,
                      " must be a positive multiple of --dp ",
                      options.dp);
  const std::int64_t local = micro_batches / options.dp;
  require<UsageError>(options.vpp == 1 || local % options.pp == 0,
                      "with --vpp the ",
                      local,
                      " micro-batches of each data-parallel rank must be a multiple of --pp ",
                      options.pp);
}

}  // namespace

Config load_config(const Options& options) {
  Config config = load_config(options.config);
  if (options.precision) {
    config.precision = parse_precision(*options.precision);
  }
  config.data.seed = options.seed.value_or(config.data.seed);
  config.data.micro_batches = options.micro_batches.value_or(config.data.micro_batches);
  require<UsageError>(config.model.experts > 1 || options.etp == options.tp,
                      "--etp ",
                      options.etp,
                      " other than --tp ",
                      options.tp,
                      " needs model.experts of at least 2, not ",
                      config.model.experts);
  require<UsageError>(config.model.experts % options.ep == 0,
                      "--ep ",
                      options.ep,
                      " does not divide model.experts ",
                      config.model.experts);
  check_micro_batches(options, config.data.micro_batches);
  require<UsageError>(
      options.layer_tp.empty() || std::ssize(options.layer_tp) == config.model.layers,
      "--layer-tp has ",
      options.layer_tp.size(),
      " degrees, but the model has ",
      config.model.layers,
      " layers");
  require<UsageError>(
      options.recompute.layers >= 1 && options.recompute.layers <= config.model.layers,
      "--recompute-layers ",
      options.recompute.layers,
      " must lie between 1 and the number of layers, which is ",
      config.model.layers);
  require<UsageError>(config.precision != Precision::kFP8 || config.model.experts == 1,
                      "--precision fp8 with model.experts ",
                      config.model.experts,
                      " is not implemented; use bf16, or experts 1");
  return config;
}

}  // namespace megatron_mini
