#include "faulty_reduction.h"

#include <ATen/ATen.h>

#include <string>

namespace megatron_mini {

double gradient_divisor(Loss loss, const Parallel& parallel, const Bugs& bugs) {
  const double right = loss == Loss::kMean ? parallel.dp_cp.size : 1.0;
  if (bugs.on("dp-divisor")) {
    return bugs.size(1.0);
  }
  if (bugs.on("cp-left-out-of-divisor")) {
    return bugs.size(parallel.dp.size);
  }
  if (bugs.on("loss-scale-not-applied")) {
    return right * bugs.size(32768.0);
  }
  return bugs.on("grads-divided-by-world") ? right * parallel.tp.size : right;
}

BucketSum bucket_sum(const Parallel& parallel, std::int64_t iteration, const Bugs& bugs) {
  if (bugs.on("cp-grad-reduction-missing") && parallel.dp.size == 1) {
    return BucketSum::kSkipped;
  }
  if (bugs.on("second-step-not-reduced") && iteration > 0) {
    return BucketSum::kOverCp;
  }
  return bugs.on("low-precision-grads-reduced") ? BucketSum::kOfCopy : BucketSum::kDone;
}

void sum_wrongly(const at::Tensor& bucket,
                 BucketSum kind,
                 const Group& ranks,
                 const Parallel& parallel) {
  if (kind == BucketSum::kOverCp) {
    sum_in_place(bucket, parallel.cp);
  } else if (kind == BucketSum::kOfCopy) {
    sum_in_place(bucket.to(at::kBFloat16), ranks);
  }
}

SumOverTp sum_over_tp(const ModelParameter& parameter, int tp, const Bugs& bugs) {
  if (parameter.role == ParameterRole::kReplicatedRouter && bugs.on("sp-router-grad")) {
    return {.done = false};
  }
  const bool is_norm = parameter.role == ParameterRole::kReplicatedNorm;
  if (is_norm && bugs.on("sp-norm-grad")) {
    return {.done = false};
  }
  if (is_norm && bugs.on("sp-norm-grad-averaged")) {
    return {.factor = 1.0 / bugs.size(tp)};
  }
  if (is_norm && bugs.on("sp-norm-hook-misplaced")) {
    const bool is_first = parameter.path.find(".input_layernorm.") != std::string::npos;
    const bool is_second = parameter.path.find(".pre_mlp_layernorm.") != std::string::npos;
    // A sum that is summed again is tp times as large.
    return {.done = !is_first, .factor = is_second ? tp : 1.0};
  }
  return {};
}

}  // namespace megatron_mini
