#include "stage_layers.h"

#include "error.h"

namespace megatron_mini {

namespace {

// Stages whose number of layers nobody asked for.
int other_stages(const Parallel& parallel) {
  return parallel.pp.size - (parallel.first_stage_layers ? 1 : 0) -
         (parallel.last_stage_layers ? 1 : 0);
}

// The layers of all of them together.
std::int64_t other_layers(std::int64_t layers, const Parallel& parallel) {
  return layers - parallel.first_stage_layers.value_or(0) - parallel.last_stage_layers.value_or(0);
}

void check_own_number(const char* option,
                      const std::optional<std::int64_t>& number,
                      const Parallel& parallel) {
  if (!number) {
    return;
  }
  require<UsageError>(
      parallel.pp.size >= 2, option, " ", *number, " needs --pp 2 or more, not ", parallel.pp.size);
  require<UsageError>(*number >= 1 && *number % parallel.chunks == 0,
                      option,
                      " ",
                      *number,
                      " must be a positive multiple of --vpp ",
                      parallel.chunks);
}

}  // namespace

void check_stages(std::int64_t layers, const Parallel& parallel) {
  check_own_number("--first-stage-layers", parallel.first_stage_layers, parallel);
  check_own_number("--last-stage-layers", parallel.last_stage_layers, parallel);
  const std::int64_t rest = other_layers(layers, parallel);
  const std::int64_t chunks = std::int64_t{other_stages(parallel)} * parallel.chunks;
  if (chunks == 0) {
    require<UsageError>(rest == 0,
                        "--first-stage-layers and --last-stage-layers add up to ",
                        layers - rest,
                        ", but the model has layers ",
                        layers);
    return;
  }
  require<UsageError>(rest >= chunks && rest % chunks == 0,
                      other_stages(parallel) == parallel.pp.size
                          ? "the number of layers, "
                          : "the number of layers that are left, ",
                      rest,
                      ", must be a positive multiple of the ",
                      chunks,
                      parallel.chunks == 1 ? " pipeline stages that hold them"
                                           : " virtual pipeline stages that hold them");
}

LayerRange layers_of(std::int64_t layers, const Parallel& parallel, int chunk) {
  const std::int64_t stage = parallel.pp.rank;
  const bool own_first = parallel.first_stage_layers.has_value();
  const bool own_last = parallel.last_stage_layers.has_value();
  const int others = other_stages(parallel);
  // These are layers of one chunk.
  const std::int64_t of_first = parallel.first_stage_layers.value_or(0) / parallel.chunks;
  const std::int64_t of_last = parallel.last_stage_layers.value_or(0) / parallel.chunks;
  const std::int64_t of_other =
      others == 0 ? 0 : other_layers(layers, parallel) / others / parallel.chunks;

  LayerRange range{.first = chunk * (of_first + others * of_other + of_last), .count = of_other};
  if (stage == 0) {
    range.count = own_first ? of_first : of_other;
    return range;
  }
  range.first += of_first + (own_first ? stage - 1 : stage) * of_other;
  if (parallel.is_last_stage() && own_last) {
    range.count = of_last;
  }
  return range;
}

}  // namespace megatron_mini
