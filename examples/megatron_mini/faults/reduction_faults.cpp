// Bugs of the reduction of gradients between ranks.
#include "../main_gradients.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace megatron_mini::faults {

namespace {

// What gradients are divided by, from what is right.
using Divisor = double (*)(double right, const Parallel& parallel, const Size& size);

class DividesByOther : public MainGradients {
 public:
  DividesByOther(const Size& size,
                 Divisor wrong,
                 const std::vector<ModelParameter>& parameters,
                 const Parallel& parallel)
      : MainGradients(parameters, parallel), size_(size), wrong_(wrong) {}

 protected:
  double divisor(Loss loss) const override {
    return wrong_(MainGradients::divisor(loss), parallel(), size_);
  }

 private:
  Size size_;
  Divisor wrong_;
};

// The same for the gradients of experts alone.
class DividesExpertsByOther : public MainGradients {
 public:
  DividesExpertsByOther(const Size& size,
                        Divisor wrong,
                        const std::vector<ModelParameter>& parameters,
                        const Parallel& parallel)
      : MainGradients(parameters, parallel), size_(size), wrong_(wrong) {}

 protected:
  double divisor_of_experts(double dense) const override {
    return wrong_(dense, parallel(), size_);
  }

 private:
  Size size_;
  Divisor wrong_;
};

template <class Wrong, Divisor divisor>
void divide_by(Parts& parts, const Size& size) {
  replace<Wrong>(parts.gradients, size, divisor);
}

double one(double /*right*/, const Parallel& /*parallel*/, const Size& size) {
  return size(1.0);
}

double ranks_of_dp(double /*right*/, const Parallel& parallel, const Size& size) {
  return size(parallel.dp.size);
}

double with_loss_scale(double right, const Parallel& /*parallel*/, const Size& size) {
  return right * size(32768.0);
}

double times_tp(double right, const Parallel& parallel, const Size& /*size*/) {
  return right * parallel.tp.size;
}

double scaled_by_ep(double right, const Parallel& parallel, const Size& /*size*/) {
  return right * parallel.edp.size * parallel.ep.size / parallel.dp_cp.size;
}

// Without data parallelism nothing is summed over cp either.
class NeedsDataParallelism : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void sum_bucket(std::size_t bucket) override {
    if (parallel().dp.size > 1) {
      MainGradients::sum_bucket(bucket);
    }
  }
};

// From the second step on gradients are summed over cp alone.
class ReducesFirstStepOnly : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void sum_bucket(std::size_t bucket) override {
    if (iteration() > 0) {
      sum_in_place(flat()[bucket], parallel().cp);
    } else {
      MainGradients::sum_bucket(bucket);
    }
  }
};

// A BF16 copy is summed that nobody reads.
class ReducesCopy : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void sum_bucket(std::size_t bucket) override {
    sum_in_place(flat()[bucket].to(at::kBFloat16), buckets()[bucket].group);
  }
};

// What does not fill a part's unit on every rank, at the end of a divided bucket, is not summed.
class LeavesBucketEnd : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void sum_bucket(std::size_t number) override {
    if (!parallel().zero1) {
      MainGradients::sum_bucket(number);
      return;
    }
    const FlatBucket& bucket = buckets()[number];
    const std::int64_t begin = bucket.part() * bucket.group.rank;
    const std::int64_t unit = kPartUnit * bucket.group.size;
    const std::int64_t end = bucket.used / unit * unit;
    const std::int64_t count = std::clamp<std::int64_t>(end - begin, 0, bucket.part());
    const at::Tensor sums = reduce_scatter(flat()[number], bucket.group);
    flat()[number].narrow(0, begin, count).copy_(sums.narrow(0, 0, count));
  }
};

// Some gradients are summed over cp alone.
class Overlooks : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  [[nodiscard]] virtual bool is_overlooked(const ModelParameter& parameter) const = 0;

  void sum_buckets() override {
    std::vector<std::pair<at::Tensor, at::Tensor>> overlooked;  // gradients and what they were
    for (std::size_t i = 0; i < parameters().size(); ++i) {
      if (is_overlooked(parameters()[i])) {
        overlooked.emplace_back(gradients()[i], gradients()[i].clone());
      }
    }
    MainGradients::sum_buckets();
    for (const auto& [gradient, before] : overlooked) {
      gradient.copy_(all_reduce(before, parallel().cp));
    }
  }
};

class OverlooksVectors : public Overlooks {
 public:
  using Overlooks::Overlooks;

 protected:
  bool is_overlooked(const ModelParameter& parameter) const override {
    return parameter.tensor.dim() == 1;
  }
};

class OverlooksHead : public Overlooks {
 public:
  using Overlooks::Overlooks;

 protected:
  bool is_overlooked(const ModelParameter& parameter) const override {
    return parameter.path == "output_layer.weight";
  }
};

// Sequence parallelism's addends of a role stay on their ranks.
template <ParameterRole role>
class LeavesAddends : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  bool is_addend(const ModelParameter& parameter) const override {
    return parameter.role != role && MainGradients::is_addend(parameter);
  }
};

class AveragesNorms : public MainGradients {
 public:
  AveragesNorms(const Size& size,
                const std::vector<ModelParameter>& parameters,
                const Parallel& parallel)
      : MainGradients(parameters, parallel), factor_(1.0 / size(parallel.tp.size)) {}

 protected:
  at::Tensor whole(const ModelParameter& parameter, const at::Tensor& sum) const override {
    return parameter.role == ParameterRole::kReplicatedNorm ? sum * factor_ : sum;
  }

 private:
  double factor_;
};

// The sum over tp that belongs to a layer's first norm is done once more for its second.
class MisplacesSumOfNorms : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  bool is_addend(const ModelParameter& parameter) const override {
    const bool is_first = parameter.path.find(".input_layernorm.") != std::string::npos;
    return !is_first && MainGradients::is_addend(parameter);
  }
  at::Tensor whole(const ModelParameter& parameter, const at::Tensor& sum) const override {
    const bool is_second = parameter.path.find(".pre_mlp_layernorm.") != std::string::npos;
    return is_second ? sum * parallel().tp.size : sum;  // what a sum of sums is
  }
};

// The message of addends has room for those of frozen parameters, which nobody fills.
class LeavesRoomForFrozen : public MainGradients {
 public:
  LeavesRoomForFrozen(const std::vector<ModelParameter>& all, const Parallel& parallel)
      : MainGradients(all, parallel) {
    for (const auto& parameter : all) {
      const bool is_frozen = !parameter.tensor.requires_grad();
      room_ += is_frozen && MainGradients::is_addend(parameter) ? parameter.tensor.numel() : 0;
    }
  }

 protected:
  at::Tensor joined(const std::vector<at::Tensor>& addends) const override {
    return at::cat({at::zeros({room_}, addends.front().options()), MainGradients::joined(addends)});
  }

 private:
  std::int64_t room_ = 0;  // elements
};

// The optimizer has copied what it is going to use.
class SumsCopyOfTied : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void sum_tied(const at::Tensor& gradient) override { MainGradients::sum_tied(gradient.clone()); }
};

constexpr Bug kReductionBugs[] = {
    {"dp-divisor", divide_by<DividesByOther, one>},
    {"cp-left-out-of-divisor", divide_by<DividesByOther, ranks_of_dp>},
    {"loss-scale-not-applied", divide_by<DividesByOther, with_loss_scale>},
    {"grads-divided-by-world", divide_by<DividesByOther, times_tp>},
    {"expert-grads-not-divided", divide_by<DividesExpertsByOther, one>},
    {"expert-grads-scaled-by-ep", divide_by<DividesExpertsByOther, scaled_by_ep>},
    {"cp-grad-reduction-missing", everywhere<&Parts::gradients, NeedsDataParallelism>},
    {"second-step-not-reduced", everywhere<&Parts::gradients, ReducesFirstStepOnly>},
    {"low-precision-grads-reduced", everywhere<&Parts::gradients, ReducesCopy>},
    {"bucket-end-not-reduced", everywhere<&Parts::gradients, LeavesBucketEnd>},
    {"vector-grads-not-reduced", everywhere<&Parts::gradients, OverlooksVectors>},
    {"head-grad-not-reduced", everywhere<&Parts::gradients, OverlooksHead>},
    {"sp-router-grad",
     everywhere<&Parts::gradients, LeavesAddends<ParameterRole::kReplicatedRouter>>},
    {"sp-norm-grad", everywhere<&Parts::gradients, LeavesAddends<ParameterRole::kReplicatedNorm>>},
    {"sp-norm-grad-averaged",
     [](Parts& parts, const Size& size) { replace<AveragesNorms>(parts.gradients, size); }},
    {"sp-norm-hook-misplaced", everywhere<&Parts::gradients, MisplacesSumOfNorms>},
    {"frozen-norm-grads-shifted", everywhere<&Parts::gradients, LeavesRoomForFrozen>},
    {"tied-grads-not-summed", everywhere<&Parts::gradients, SumsCopyOfTied>},
};

}  // namespace

std::span<const Bug> reduction_bugs() {
  return kReductionBugs;
}

}  // namespace megatron_mini::faults
