// Mixture of experts in the place of a layer's feed-forward network.
//
// Modules: router, experts.E with the global number E of each of this rank's experts (rank r of ep
// has experts r * experts / ep and following), shared_expert.
#pragma once

#include "blueprint.h"
#include "experts.h"
#include "mlp.h"
#include "router.h"
#include "token_dispatcher.h"

#include <memory>
#include <string>
#include <vector>

namespace megatron_mini {

class MoeLayer : public torch::nn::Module {
 public:
  MoeLayer(const Blueprint& blueprint, const std::string& path);
  // [rows, b, h] -> [rows, b, h]
  [[nodiscard]] at::Tensor forward(const at::Tensor& input, const TokenPlaces& places);

 protected:
  // Every expert's rows of outputs, joined [m, h] -> tokens [n, h].
  [[nodiscard]] virtual at::Tensor combine(const at::Tensor& outputs,
                                           const TokenDispatch& dispatch,
                                           const Routing& routing) const;
  // Tokens [n, h] -> those of the input, [rows, b, h].
  [[nodiscard]] virtual at::Tensor in_place(const at::Tensor& tokens,
                                            const at::Tensor& input) const;
  [[nodiscard]] const Parallel& parallel() const { return blueprint_.parallel; }
  [[nodiscard]] const std::vector<std::shared_ptr<Expert>>& experts() const { return experts_; }

 private:
  // Every expert's rows, joined [m, h] -> addends over etp [m, h].
  [[nodiscard]] at::Tensor run_experts(const at::Tensor& rows, const TokenDispatch& dispatch);

  Blueprint blueprint_;
  std::string path_;
  std::shared_ptr<Router> router_;
  std::vector<std::shared_ptr<Expert>> experts_;  // of this rank
  std::shared_ptr<Mlp> shared_expert_;            // null where there is none
};

}  // namespace megatron_mini
