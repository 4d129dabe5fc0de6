// Bugs of how gradients are collected over micro-batches, and of their buckets.
#include "../main_gradients.h"
#include "bug_tables.h"
#include "early_reduction.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace megatron_mini::faults {

namespace {

class NeverClears : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void clear() override {}
};

// From the second step on gradients begin as the parameters that were gathered in their buckets.
class BeginsWithParameters : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void clear() override {
    MainGradients::clear();
    for (std::size_t i = 0; iteration() > 0 && i < parameters().size(); ++i) {
      gradients()[i].copy_(parameters()[i].tensor.detach());
    }
  }
};

class DropsSecondMicrobatch : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void add(std::size_t i, const at::Tensor& gradient, std::int64_t microbatch) override {
    if (microbatch != 1) {
      MainGradients::add(i, gradient, microbatch);
    }
  }
};

// With pipeline stages gradients are added `size` times.
class AddsTwice : public Sized<MainGradients> {
 public:
  using Sized::Sized;

 protected:
  void add(std::size_t i, const at::Tensor& gradient, std::int64_t /*microbatch*/) override {
    gradients()[i].add_(gradient, parallel().pp.size > 1 ? size() : 1.0);
  }
};

class NeverAddsOneWeight : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  void add(std::size_t i, const at::Tensor& gradient, std::int64_t microbatch) override {
    if (parameters()[i].path != "decoder.layers.1.mlp.linear_fc1.weight") {
      MainGradients::add(i, gradient, microbatch);
    }
  }
};

// Without data parallelism every micro-batch multiplies what is there.
class MultipliesBeforeAdding : public Sized<MainGradients> {
 public:
  using Sized::Sized;

 protected:
  void add(std::size_t i, const at::Tensor& gradient, std::int64_t microbatch) override {
    if (microbatch > 0 && parallel().dp.size == 1) {
      gradients()[i].mul_(size());
    }
    MainGradients::add(i, gradient, microbatch);
  }
};

// The gradients of experts lie in buckets that all ranks of dp and cp sum.
class SumsExpertsWithTheRest : public MainGradients {
 public:
  SumsExpertsWithTheRest(const std::vector<ModelParameter>& all, const Parallel& parallel)
      : MainGradients(trained(all),
                      parallel,
                      flat_buckets(trained(all), parallel.dp_cp, parallel.zero1, parallel.dp_cp)) {}
};

// The last pipeline stage holds the tied weight where it uses it, behind its layers, and not where
// the first stage has it; no stage gives it a bucket of its own.
class MisalignsTiedWeight : public MainGradients {
 public:
  MisalignsTiedWeight(const std::vector<ModelParameter>& all, const Parallel& parallel)
      : MainGradients(tied_last(all), parallel, buckets_of(tied_last(all), parallel)) {}

 private:
  static std::vector<ModelParameter> tied_last(const std::vector<ModelParameter>& all) {
    auto parameters = trained(all);
    std::stable_partition(parameters.begin(), parameters.end(), [](const auto& item) {
      return !item.is_second_copy;
    });
    return parameters;
  }
  static std::vector<FlatBucket> buckets_of(std::vector<ModelParameter> parameters,
                                            const Parallel& parallel) {
    for (auto& parameter : parameters) {
      parameter.path.clear();  // so that none is known as the tied weight
    }
    return flat_buckets(parameters, parallel.dp_cp, parallel.zero1, parallel.edp);
  }
};

constexpr Bug kGradientBugs[] = {
    {"grads-not-zeroed", everywhere<&Parts::gradients, NeverClears>},
    {"gathered-parameters-left-in-grads", everywhere<&Parts::gradients, BeginsWithParameters>},
    {"dropped-microbatch", everywhere<&Parts::gradients, DropsSecondMicrobatch>},
    {"pipeline-grads-added-twice",
     [](Parts& parts, const Size& size) { replace<AddsTwice>(parts.gradients, size(2.0)); }},
    {"weight-grad-not-accumulated", everywhere<&Parts::gradients, NeverAddsOneWeight>},
    {"grads-doubled-per-microbatch",
     [](Parts& parts, const Size& size) {
       replace<MultipliesBeforeAdding>(parts.gradients, size(2.0));
     }},
    {"expert-grads-in-dense-group", everywhere<&Parts::gradients, SumsExpertsWithTheRest>},
    {"tied-shards-misaligned", everywhere<&Parts::gradients, MisalignsTiedWeight>},
    {"reduced-before-last-microbatch", reduce_before_last_microbatch},
    {"virtual-stages-reduced-early", reduce_after_first_virtual_stage},
};

}  // namespace

std::span<const Bug> gradient_bugs() {
  return kGradientBugs;
}

}  // namespace megatron_mini::faults
