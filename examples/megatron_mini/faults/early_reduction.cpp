#include "early_reduction.h"

#include "../trainer.h"

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

namespace megatron_mini::faults {

namespace {

// Sums over the data ranks at the first call after clear(), and not again.
class SumsOnce : public MainGradients {
 public:
  SumsOnce(bool divides_later_ones,
           const std::vector<ModelParameter>& parameters,
           const Parallel& parallel)
      : MainGradients(parameters, parallel), divides_later_ones_(divides_later_ones) {}

  void sum_over_data_ranks(Loss loss) override {
    if (!divisor_of_later_) {
      MainGradients::sum_over_data_ranks(loss);
      divisor_of_later_ = divides_later_ones_ ? divisor(loss) : 1.0;
    }
  }

 protected:
  void clear() override {
    MainGradients::clear();
    divisor_of_later_.reset();
  }
  void add(std::size_t i, const at::Tensor& gradient, std::int64_t /*microbatch*/) override {
    gradients()[i].add_(gradient, 1.0 / divisor_of_later_.value_or(1.0));
  }

 private:
  bool divides_later_ones_;
  std::optional<double> divisor_of_later_;  // nothing: not summed yet
};

class SumsBeforeLastMicrobatch : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  void collect_gradients(const Task& task, const Running& running) override {
    if (task.microbatch + 1 == local_microbatches() && task.chunk + 1 == parallel().chunks) {
      gradients().sum_over_data_ranks(plan().config.loss);
    }
    Trainer::collect_gradients(task, running);
  }
};

class SumsAfterFirstVirtualStage : public Trainer {
 public:
  using Trainer::Trainer;

 protected:
  LossAddend train_microbatches(ttrace::Step& step, std::int64_t iteration) override {
    passes_ = 0;
    return Trainer::train_microbatches(step, iteration);
  }
  void collect_gradients(const Task& task, const Running& running) override {
    Trainer::collect_gradients(task, running);
    if (++passes_ == local_microbatches()) {
      gradients().sum_over_data_ranks(plan().config.loss);
    }
  }

 private:
  std::int64_t passes_ = 0;  // backward, of this step
};

}  // namespace

void reduce_before_last_microbatch(Parts& parts, const Size& /*size*/) {
  replace<SumsOnce>(parts.gradients, false);
  replace<SumsBeforeLastMicrobatch>(parts.trainer);
}

void reduce_after_first_virtual_stage(Parts& parts, const Size& /*size*/) {
  replace<SumsOnce>(parts.gradients, true);
  replace<SumsAfterFirstVirtualStage>(parts.trainer);
}

}  // namespace megatron_mini::faults
