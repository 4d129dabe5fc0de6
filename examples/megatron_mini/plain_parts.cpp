#include "plain_parts.h"

#include "attention.h"
#include "dropout.h"
#include "experts.h"
#include "fp8_linear.h"
#include "gpt_model.h"
#include "layers.h"
#include "main_gradients.h"
#include "mixed_precision_optimizer.h"
#include "moe_layer.h"
#include "parameter_gather.h"
#include "ring_attention.h"
#include "router.h"
#include "stage_layers.h"
#include "token_dispatcher.h"
#include "trainer.h"

namespace megatron_mini {

namespace {

template <class Part, class... Arguments>
void make_plain(Maker<Part, Arguments...>& maker) {
  maker = [](Arguments... arguments) { return make_part<Part>(arguments...); };
}

}  // namespace

Parts plain_parts() {
  Parts parts;
  make_plain(parts.embedding);
  make_plain(parts.decoder);
  make_plain(parts.output_layer);
  make_plain(parts.norm);
  make_plain(parts.attention);
  make_plain(parts.core_attention);
  make_plain(parts.ring);
  make_plain(parts.dropout);
  make_plain(parts.column);
  make_plain(parts.row);
  parts.fp8 = [](LinearSplit split, const Blueprint& blueprint, const std::string& path) {
    return computes_in_fp8(blueprint, path) ? std::make_shared<Fp8Linear>(split, blueprint)
                                            : nullptr;
  };
  make_plain(parts.quantiser);
  make_plain(parts.moe);
  make_plain(parts.router);
  make_plain(parts.expert);
  make_plain(parts.dispatch);
  parts.layers_of = layers_of;
  make_plain(parts.trainer);
  make_plain(parts.gradients);
  make_plain(parts.optimizer);
  make_plain(parts.gather);
  return parts;
}

}  // namespace megatron_mini
