// Bugs of the gradient norm and of clipping by it.
#include "../main_gradients.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <cmath>

namespace megatron_mini::faults {

namespace {

// Reads gradients that are not there yet.
class FindsNoGradients : public MainGradients {
 public:
  using MainGradients::MainGradients;
  double norm() const override { return 0.0; }
};

// Every rank counts its copy of what ranks hold copies of.
class CountsCopies : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  bool counts_in_norm(const ModelParameter& parameter) const override {
    return !parameter.is_second_copy;
  }
};

// A rank's norm is that of what it holds.
class CountsOwnOnly : public CountsCopies {
 public:
  using CountsCopies::CountsCopies;

 protected:
  at::Tensor sum_over_stage(const at::Tensor& squared, bool /*of_experts*/) const override {
    return squared;
  }
};

// Only the first rank's part counts of an expert that ranks of etp share.
class CountsFirstExpertShard : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  bool counts_in_norm(const ModelParameter& parameter) const override {
    const bool is_left_out =
        parameter.role == ParameterRole::kExpertSplit && parallel().etp.rank > 0;
    return !is_left_out && MainGradients::counts_in_norm(parameter);
  }
};

class CountsTiedTwice : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  bool counts_in_norm(const ModelParameter& parameter) const override {
    ModelParameter as_if_first = parameter;
    as_if_first.is_second_copy = false;
    return MainGradients::counts_in_norm(as_if_first);
  }
};

// A pipeline stage's norm is that of its own layers.
class KeepsToItsStage : public MainGradients {
 public:
  using MainGradients::MainGradients;

 protected:
  at::Tensor sum_over_stages(const at::Tensor& squared) const override { return squared; }
};

// Experts are clipped by a norm of their own; the reported one is that of all else.
class ClipsExpertsApart : public MainGradients {
 public:
  using MainGradients::MainGradients;
  double norm() const override { return std::sqrt(squared_norm(false)); }
  void clip(double norm, double limit) override {
    const double of_experts = std::sqrt(squared_norm(true));
    for (std::size_t i = 0; i < buckets().size(); ++i) {
      shorten(i, is_of_experts(buckets()[i]) ? of_experts : norm, limit);
    }
  }
};

class NeverClips : public MainGradients {
 public:
  using MainGradients::MainGradients;
  void clip(double /*norm*/, double /*limit*/) override {}
};

class ClipsOnFirstTpRank : public MainGradients {
 public:
  using MainGradients::MainGradients;
  void clip(double norm, double limit) override {
    if (parallel().tp.rank == 0) {
      MainGradients::clip(norm, limit);
    }
  }
};

constexpr Bug kClippingBugs[] = {
    {"norm-of-absent-grads", everywhere<&Parts::gradients, FindsNoGradients>},
    {"norm-counts-copies", everywhere<&Parts::gradients, CountsCopies>},
    {"local-clip-norm", everywhere<&Parts::gradients, CountsOwnOnly>},
    {"expert-shards-not-in-norm", everywhere<&Parts::gradients, CountsFirstExpertShard>},
    {"tied-counted-twice-in-norm", everywhere<&Parts::gradients, CountsTiedTwice>},
    {"stage-clip-norm", everywhere<&Parts::gradients, KeepsToItsStage>},
    {"dense-and-expert-norms-apart", everywhere<&Parts::gradients, ClipsExpertsApart>},
    {"clipping-disabled", everywhere<&Parts::gradients, NeverClips>},
    {"clipped-on-first-tp-rank-only", everywhere<&Parts::gradients, ClipsOnFirstTpRank>},
};

}  // namespace

std::span<const Bug> clipping_bugs() {
  return kClippingBugs;
}

}  // namespace megatron_mini::faults
