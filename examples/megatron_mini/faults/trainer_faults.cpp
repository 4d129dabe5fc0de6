// Bugs of the training step itself: data, loss, schedule, checkpoint.
#include "../cross_entropy.h"
#include "../fp8_histories.h"
#include "../trainer.h"
#include "bug_tables.h"
#include "loss_faults.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <string>

namespace megatron_mini::faults {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The loss mask is cut into contiguous parts where all else is cut zig-zag.
class CutsMaskContiguously : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  Batch part_of(const Batch& whole) const override {
    Batch part = Trainer::part_of(whole);
    const std::int64_t rows = part.loss_mask.size(1);
    const at::Tensor taken = at::arange(rows) + rows * parallel().cp.rank;
    part.loss_mask = whole.loss_mask.index_select(1, taken);
    return part;
  }
};

at::Tensor summed_again(const at::Tensor& addends, const Group& group) {
  return all_reduce(sum_of_denominators(addends, group), group);
}

// Every rank has the whole logits' denominators, which are summed over the ranks again.
class SumsDenominatorsTwice : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  at::Tensor loss_per_token(const at::Tensor& logits, const Batch& batch) const override {
    return cross_entropy(logits,
                         batch.labels.t().contiguous(),
                         vocabulary_part(logits),
                         parallel().tp,
                         summed_again);
  }
};

// Hands its input on; backward gives all its elements the gradient of the first.
struct FirstGradientForAll : torch::autograd::Function<FirstGradientForAll> {
  static at::Tensor forward(AutogradContext* /*context*/, const at::Tensor& input) { return input; }
  static variable_list backward(AutogradContext* /*context*/, variable_list gradients) {
    return {gradients[0][0][0].expand_as(gradients[0])};
  }
};

class TakesFirstTokensGradient : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  at::Tensor loss_per_token(const at::Tensor& logits, const Batch& batch) const override {
    return FirstGradientForAll::apply(Trainer::loss_per_token(logits, batch));
  }
};

// The reported loss is summed over dp alone.
class ReportsLossWithoutCp : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  LossAddend sum_over_ranks(const LossAddend& mine) const override {
    LossAddend whole = Trainer::sum_over_ranks(mine);
    const at::Tensor over_dp = all_reduce(at::full({1}, mine.loss, at::kDouble), parallel().dp);
    whole.loss = all_reduce(over_dp, parallel().pp).item<double>() / loss_divisor(whole.tokens);
    return whole;
  }
};

// Half-way through a step's backward passes what is collected so far is scaled.
class RescalesHalfWay : public Sized<Trainer> {
 public:
  using Sized::Sized;

 protected:
  LossAddend train_microbatches(ttrace::Step& step, std::int64_t iteration) override {
    passes_ = 0;
    return Trainer::train_microbatches(step, iteration);
  }
  void collect_gradients(const Task& task, const Running& running) override {
    if (passes_ == local_microbatches() * parallel().chunks / 2) {
      gradients().divide(1.0 / size());
    }
    Trainer::collect_gradients(task, running);
    ++passes_;
  }

 private:
  std::int64_t passes_ = 0;  // backward, of this step
};

// FP8 magnitudes are shared over dp alone.
class SharesAmaxesOverDp : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  void roll_histories() override {
    Parallel ranks = parallel();
    ranks.tp = {};
    ranks.dp_cp = ranks.dp;
    roll_fp8_histories(model(), ranks);
  }
};

// Weights go through a checkpoint in memory. linear_fc1 is saved as the shards of the ranks of tp
// one after another, each of gate and up rows, and loaded as if all gate rows came before all up
// rows.
class LoadsGateAndUpMixed : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  void update_parameters(ttrace::Step& step) override {
    Trainer::update_parameters(step);
    for (const auto& parameter : gradients().parameters()) {
      if (parameter.path.find(".mlp.linear_fc1.") != std::string::npos) {
        save_and_load(parameter.tensor.detach());
      }
    }
  }

 private:
  void save_and_load(const at::Tensor& shard) const {
    const Group& tp = parallel().tp;
    const at::Tensor saved = all_gather(shard, tp);
    const auto gates = saved.size(0) / 2;
    const auto share = gates / tp.size;
    shard.copy_(at::cat({saved.narrow(0, share * tp.rank, share),
                         saved.narrow(0, gates + share * tp.rank, share)}));
  }
};

constexpr Bug kTrainerBugs[] = {
    {"zigzag-loss-mask-contiguous", everywhere<&Parts::trainer, CutsMaskContiguously>},
    {"full-logits-into-split-loss", everywhere<&Parts::trainer, SumsDenominatorsTwice>},
    {"loss-gradient-of-first-token", everywhere<&Parts::trainer, TakesFirstTokensGradient>},
    {"reported-loss-without-cp", everywhere<&Parts::trainer, ReportsLossWithoutCp>},
    {"pipeline-rescales-accumulated",
     [](Parts& parts, const Size& size) { replace<RescalesHalfWay>(parts.trainer, size(0.5)); }},
    {"fp8-amax-over-wrong-group", everywhere<&Parts::trainer, SharesAmaxesOverDp>},
    {"resharded-gate-and-up-mixed", everywhere<&Parts::trainer, LoadsGateAndUpMixed>},
    {"cp-loss-factor", scale_loss<times_cp>},
    {"cp-factor-per-token", scale_loss<times_cp>},
    {"mean-of-means", scale_loss<of_own_tokens>},
    {"mean-of-ranks", scale_loss<of_rank_tokens>},
};

}  // namespace

std::span<const Bug> trainer_bugs() {
  return kTrainerBugs;
}

}  // namespace megatron_mini::faults
