// Mixture of experts in the place of a layer's feed-forward network.
//
// Modules: router, experts.E with the global number E of each of this rank's experts (rank r of ep
// has experts r * experts / ep and following), shared_expert.
#pragma once

#include "experts.h"
#include "router.h"
#include "token_dispatcher.h"

#include <memory>
#include <string>
#include <vector>

namespace megatron_mini {

class Mlp;

class MoeLayer : public torch::nn::Module {
 public:
  MoeLayer(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]; `before_norm` is what `input` was normed from.
  [[nodiscard]] at::Tensor forward(const at::Tensor& input,
                                   const at::Tensor& before_norm,
                                   const TokenPlaces& places);

 private:
  // Every expert's rows, joined [m, h] -> addends over etp [m, h].
  [[nodiscard]] at::Tensor run_experts(const at::Tensor& rows, const TokenDispatch& dispatch);
  // What experts' biases, without a weight, add to tokens; n of them. A planted bug.
  [[nodiscard]] at::Tensor unweighted_biases(const TokenDispatch& dispatch, const Routing& routing);

  Blueprint blueprint_;
  std::string path_;
  bool weighs_biases_;
  std::shared_ptr<Router> router_;
  std::vector<std::shared_ptr<Expert>> experts_;  // of this rank
  std::shared_ptr<Mlp> shared_expert_;            // null where there is none
};

}  // namespace megatron_mini
