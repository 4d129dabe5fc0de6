// Bugs of the mixture of experts behind its router.
#include "../moe_layer.h"
#include "bug_tables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace megatron_mini::faults {

namespace {

constexpr char kMoe[] = "decoder.layers.1.mlp";

// Leaves its output's bias to WeighsNoBiases.
class AddsNoBias : public Expert {
 public:
  using Expert::Expert;

 protected:
  bool adds_output_bias() const override { return false; }
};

// Experts' biases are added without the weights of the experts.
class WeighsNoBiases : public MoeLayer {
 public:
  using MoeLayer::MoeLayer;

 protected:
  at::Tensor combine(const at::Tensor& outputs,
                     const TokenDispatch& dispatch,
                     const Routing& routing) const override {
    return MoeLayer::combine(outputs, dispatch, routing) + biases(dispatch, routing);
  }

 private:
  // What they add to this rank's tokens, [n, h].
  at::Tensor biases(const TokenDispatch& dispatch, const Routing& routing) const {
    const double share = parallel().etp.rank == 0 ? 1.0 : 0.0;
    std::vector<at::Tensor> rows;
    for (std::size_t i = 0; i < experts().size(); ++i) {
      const at::Tensor& bias = experts()[i]->output_bias();
      rows.push_back(bias.expand({dispatch.rows_per_expert()[i], bias.size(0)}) * share);
    }
    return dispatch.combine(at::cat(rows).to(routing.weights.scalar_type()),
                            at::ones_like(routing.weights.detach()));
  }
};

void add_biases_without_weights(Parts& parts, const Size& /*size*/) {
  replace_at<WeighsNoBiases>(kMoe, parts.moe);
  replace_where<AddsNoBias>(
      [](const std::string& path) { return path.starts_with(std::string(kMoe) + ".experts."); },
      parts.expert);
}

// Tokens that lie by sample are read as if they lay by row.
class FlattensSamplesFirst : public MoeLayer {
 public:
  using MoeLayer::MoeLayer;

 protected:
  at::Tensor in_place(const at::Tensor& tokens, const at::Tensor& input) const override {
    return MoeLayer::in_place(tokens, input)
        .view({input.size(1), input.size(0), input.size(2)})
        .transpose(0, 1)
        .contiguous();
  }
};

// Rows come from ranks that work on other micro-batches.
void gather_over_the_world(Parts& parts, const Size& /*size*/) {
  parts.dispatch = [before = parts.dispatch](Blueprint blueprint, const std::string& path) {
    if (path == kMoe) {
      blueprint.parallel.etp = blueprint.parallel.world;
      blueprint.parallel.etp_ep = blueprint.parallel.world;
    }
    return before(blueprint, path);
  };
}

// Every rank's rows are cut by the numbers of this rank's.
class CutsByOwnCounts : public TokenDispatch {
 public:
  using TokenDispatch::TokenDispatch;

  // Rows that are mixed up may come to an expert twice; the second one has no place.
  ttrace::Rows places_of_rows(std::size_t expert) const override {
    ttrace::Rows rows = TokenDispatch::places_of_rows(expert);
    std::set<std::pair<std::int64_t, std::int64_t>> seen;
    for (std::size_t i = 0; i < rows.index.size(); ++i) {
      if (!seen.emplace(rows.microbatch[i], rows.index[i]).second) {
        rows.index[i] = -1;
      }
    }
    return rows;
  }

 protected:
  at::Tensor experts_of_rows(const at::Tensor& counts) const override {
    const auto rank = std::min<std::int64_t>(parallel().etp.rank, counts.size(0) - 1);
    const at::Tensor cut =
        TokenDispatch::experts_of_rows(counts.narrow(0, rank, 1).expand_as(counts));
    // As many as there are rows.
    const auto rows = counts.sum().item<std::int64_t>();
    const std::int64_t missing = std::max<std::int64_t>(0, rows - cut.numel());
    return at::cat({cut, at::full({missing}, counts.size(2) - 1, counts.options())})
        .narrow(0, 0, rows);
  }
};

// The gradient of experts' input stays this rank's addend.
class LeavesInputGradient : public TokenDispatch {
 public:
  using TokenDispatch::TokenDispatch;

 protected:
  at::Tensor enter_rows(const at::Tensor& rows) const override {
    return enter_region(rows, parallel(), SumOverRanks::kSkipped);
  }
};

// The gradient of the router's weights stays this rank's addend.
class LeavesWeightGradient : public TokenDispatch {
 public:
  using TokenDispatch::TokenDispatch;

 protected:
  at::Tensor enter_weights(const at::Tensor& weights) const override {
    return enter_region(weights, parallel(), SumOverRanks::kSkipped);
  }
};

// Weighted outputs are rounded to so many mantissa bits behind the leading one.
class RoundsWeightedOutputs : public Sized<TokenDispatch> {
 public:
  using Sized::Sized;

 protected:
  at::Tensor weigh(const at::Tensor& outputs, const at::Tensor& weights) const override {
    const at::Tensor exact = TokenDispatch::weigh(outputs, weights);
    const at::Tensor magnitude = exact.detach().abs().clamp_min(1e-30);
    const at::Tensor unit = at::exp2(magnitude.log2().floor() - size());
    return exact + ((exact / unit).round() * unit - exact).detach();
  }
};

constexpr Bug kExpertBugs[] = {
    {"probability-before-bias", add_biases_without_weights},
    {"combine-flattens-samples-first", only_at<&Parts::moe, FlattensSamplesFirst, kMoe>},
    {"expert-rows-of-other-dp-ranks", gather_over_the_world},
    {"alltoall-split-sizes", only_at<&Parts::dispatch, CutsByOwnCounts, kMoe>},
    {"expert-input-grad-unsummed", only_at<&Parts::dispatch, LeavesInputGradient, kMoe>},
    {"router-grad-partial", only_at<&Parts::dispatch, LeavesWeightGradient, kMoe>},
    {"expert-combine-in-bf16",
     [](Parts& parts, const Size& size) {
       replace<RoundsWeightedOutputs>(parts.dispatch, size(7.0));
     }},
};

}  // namespace

std::span<const Bug> expert_bugs() {
  return kExpertBugs;
}

}  // namespace megatron_mini::faults
