// The whole model: names, gradients, causality, and its parts in the right order.
#include "reference/gpt.h"

#include "reference/loss.h"
#include "small_run.h"
#include "tensor_matchers.h"

#include <gmock/gmock.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/functional/normalization.h>

#include <map>
#include <string>

namespace ttrace::testing {
namespace {

namespace F = torch::nn::functional;
using reference::Activation;
using reference::Gpt;
using reference::ModelConfig;
using reference::Precision;
using ::testing::ElementsAre;

// Weights of norms around 1, all else around 0; the same numbers in every precision.
std::shared_ptr<Gpt> filled_gpt(const ModelConfig& model, Precision precision = Precision::kF64) {
  auto gpt = std::make_shared<Gpt>(model, precision);
  const torch::NoGradGuard no_grad;
  std::uint64_t seed = 100;
  for (auto& item : gpt->named_parameters()) {
    const bool norm = item.key().find("norm.weight") != std::string::npos;
    const at::Tensor value = random(item.value().sizes(), seed++) * 0.1 + (norm ? 1.0 : 0.0);
    item.value().copy_(value.to(at::kBFloat16));
  }
  return gpt;
}

at::Tensor some_tokens(std::int64_t samples, std::int64_t sequence, std::int64_t step) {
  return at::arange(samples * sequence, at::kLong)
      .mul(step)
      .remainder(257)
      .view({samples, sequence});
}

// Mean loss of 4 fixed samples as `micro_batches` micro-batches; gradients are left in `grad`.
double forward_backward(Gpt& gpt, std::int64_t micro_batches) {
  const at::Tensor tokens = some_tokens(4, 8, 31);
  const at::Tensor labels = some_tokens(4, 8, 57);
  double loss = 0.0;
  const auto token_parts = tokens.chunk(micro_batches);
  const auto label_parts = labels.chunk(micro_batches);
  for (std::size_t i = 0; i < token_parts.size(); ++i) {
    const at::Tensor share = reference::share_of_step(
        reference::cross_entropy(gpt.forward(token_parts[i]), label_parts[i]),
        at::ones_like(label_parts[i], at::kBool),
        reference::Loss::kMean,
        micro_batches);
    share.backward();
    loss += share.item<double>();
  }
  return loss;
}

std::map<std::string, at::Tensor> gradients(const Gpt& gpt) {
  std::map<std::string, at::Tensor> result;
  for (const auto& item : gpt.named_parameters()) {
    result[item.key()] = item.value().grad().clone();  // a later backward adds to the original
  }
  return result;
}

TEST(Gpt, ParametersHaveTheCanonicalNamesAndShapes) {
  ModelConfig model = small_config().model;
  model.layers = 1;
  std::vector<std::string> names;
  for (const auto& item : Gpt(model, Precision::kF64).named_parameters()) {
    names.push_back(item.key() + " " + ::testing::PrintToString(item.value().sizes().vec()));
  }
  EXPECT_THAT(names,
              ElementsAre("embedding.word_embeddings.weight { 257, 16 }",
                          "decoder.layers.0.input_layernorm.weight { 16 }",
                          "decoder.layers.0.input_layernorm.bias { 16 }",
                          "decoder.layers.0.self_attention.linear_qkv.weight { 32, 16 }",
                          "decoder.layers.0.self_attention.linear_qkv.bias { 32 }",
                          "decoder.layers.0.self_attention.linear_proj.weight { 16, 16 }",
                          "decoder.layers.0.self_attention.linear_proj.bias { 16 }",
                          "decoder.layers.0.pre_mlp_layernorm.weight { 16 }",
                          "decoder.layers.0.pre_mlp_layernorm.bias { 16 }",
                          "decoder.layers.0.mlp.linear_fc1.weight { 48, 16 }",
                          "decoder.layers.0.mlp.linear_fc1.bias { 48 }",
                          "decoder.layers.0.mlp.linear_fc2.weight { 16, 24 }",
                          "decoder.layers.0.mlp.linear_fc2.bias { 16 }",
                          "decoder.final_layernorm.weight { 16 }",
                          "decoder.final_layernorm.bias { 16 }",
                          "output_layer.weight { 257, 16 }"));
}

// One layer again, from torch's functional modules and sample-first, [B, S, H].
at::Tensor composed_layer(const at::Tensor& x, const Gpt& gpt, const std::string& layer) {
  const auto parameters = gpt.named_parameters();
  const auto weight = [&](const std::string& name) { return parameters[layer + name + ".weight"]; };
  const auto bias = [&](const std::string& name) { return parameters[layer + name + ".bias"]; };
  const auto norm = [&](const at::Tensor& y, const std::string& name) {
    return F::layer_norm(y, F::LayerNormFuncOptions({16}).weight(weight(name)).bias(bias(name)));
  };
  const auto turn = [](const at::Tensor& y) {  // [B, N, S, 4] by complex numbers
    const at::Tensor angle =
        at::outer(at::arange(8, at::kDouble), at::tensor({1.0, 0.01}, at::kDouble));
    const at::Tensor pairs =
        at::complex(y.slice(3, 0, 2).contiguous(), y.slice(3, 2, 4).contiguous());
    const at::Tensor turned = pairs * at::polar(at::ones_like(angle), angle);
    return at::cat({at::real(turned), at::imag(turned)}, 3);
  };
  const at::Tensor qkv = F::linear(norm(x, "input_layernorm"),
                                   weight("self_attention.linear_qkv"),
                                   bias("self_attention.linear_qkv"));
  const auto heads = [&](std::initializer_list<std::int64_t> starts) {
    std::vector<at::Tensor> parts;
    for (const std::int64_t start : starts) {
      parts.push_back(qkv.slice(2, start, start + 4));
    }
    return at::stack(parts, 1);  // [B, N, S, 4]
  };
  const at::Tensor attended = at::scaled_dot_product_attention(turn(heads({0, 4, 16, 20})),
                                                               turn(heads({8, 8, 24, 24})),
                                                               heads({12, 12, 28, 28}),
                                                               {},
                                                               0.0,
                                                               true);
  const at::Tensor middle = x + F::linear(attended.transpose(1, 2).flatten(2),
                                          weight("self_attention.linear_proj"),
                                          bias("self_attention.linear_proj"));
  const at::Tensor wide = F::linear(
      norm(middle, "pre_mlp_layernorm"), weight("mlp.linear_fc1"), bias("mlp.linear_fc1"));
  const at::Tensor gate = wide.slice(2, 0, 24);
  return middle + F::linear(gate * gate.sigmoid() * wide.slice(2, 24, 48),
                            weight("mlp.linear_fc2"),
                            bias("mlp.linear_fc2"));
}

TEST(Gpt, ForwardEqualsACompositionOfTorchsFunctions) {
  const auto gpt = filled_gpt(small_config().model);
  const auto parameters = gpt->named_parameters();
  const at::Tensor tokens = some_tokens(4, 8, 31);
  at::Tensor x = parameters["embedding.word_embeddings.weight"].index({tokens});  // [B, S, H]
  for (const std::string layer : {"decoder.layers.0.", "decoder.layers.1."}) {
    x = composed_layer(x, *gpt, layer);
  }
  x = F::layer_norm(x,
                    F::LayerNormFuncOptions({16})
                        .weight(parameters["decoder.final_layernorm.weight"])
                        .bias(parameters["decoder.final_layernorm.bias"]));
  const at::Tensor logits = x.matmul(parameters["output_layer.weight"].t());
  EXPECT_LT(max_difference(gpt->forward(tokens), logits.transpose(0, 1)), 1e-13);
}

class GptGradient : public ::testing::TestWithParam<std::pair<Activation, bool>> {};

// Central differences: error of order step^2 (about 1e-9 here) plus round-off / step.
TEST_P(GptGradient, EqualsFiniteDifferences) {
  ModelConfig model = small_config().model;
  std::tie(model.activation, model.tied) = GetParam();
  const auto gpt = filled_gpt(model);
  forward_backward(*gpt, 1);
  const auto exact = gradients(*gpt);
  const double step = 1e-4;
  for (auto& item : gpt->named_parameters()) {
    at::Tensor values = item.value().detach().view({-1});
    const std::int64_t index = values.numel() / 3;
    const double start = values[index].item<double>();
    const auto loss_at = [&](double value) {
      values[index].fill_(value);
      return forward_backward(*gpt, 1);
    };
    const double slope = (loss_at(start + step) - loss_at(start - step)) / (2.0 * step);
    values[index].fill_(start);
    EXPECT_NEAR(exact.at(item.key()).view({-1})[index].item<double>(), slope, 1e-8) << item.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Variants,
                         GptGradient,
                         ::testing::Values(std::pair{Activation::kSwiglu, false},
                                           std::pair{Activation::kGelu, false},
                                           std::pair{Activation::kSwiglu, true}));

TEST(Gpt, GradientsOfMicroBatchesAddUpToThatOfOneBatch) {
  const auto whole = filled_gpt(small_config().model);
  const auto parts = filled_gpt(small_config().model);
  const double loss = forward_backward(*whole, 1);
  EXPECT_NEAR(forward_backward(*parts, 4), loss, 1e-13);
  const auto expected = gradients(*whole);
  for (const auto& [name, gradient] : gradients(*parts)) {
    EXPECT_LT(relative_difference(gradient, expected.at(name)), 1e-12) << name;
  }
}

TEST(Gpt, TiedWeightGetsTheGradientsOfBothItsUses) {
  ModelConfig model = small_config().model;
  const auto separate = filled_gpt(model);
  model.tied = true;
  const auto tied = filled_gpt(model);
  EXPECT_FALSE(tied->named_parameters().contains("output_layer.weight"));
  {
    const torch::NoGradGuard no_grad;
    separate->output_layer->weight.copy_(separate->word_embeddings->weight);
  }
  EXPECT_EQ(forward_backward(*tied, 1), forward_backward(*separate, 1));
  EXPECT_LT(max_difference(
                tied->word_embeddings->weight.grad(),
                separate->word_embeddings->weight.grad() + separate->output_layer->weight.grad()),
            1e-15);
}

TEST(Gpt, LaterTokensDoNotChangeEarlierLogits) {
  const auto gpt = filled_gpt(small_config().model);
  const at::Tensor tokens = some_tokens(2, 8, 31);
  at::Tensor changed = tokens.clone();
  changed.select(1, 5).add_(1);                    // no token of `some_tokens` there is 256
  const at::Tensor before = gpt->forward(tokens);  // [S, B, V]
  const at::Tensor after = gpt->forward(changed);
  EXPECT_EQ(max_difference(before.narrow(0, 0, 5), after.narrow(0, 0, 5)), 0.0);
  EXPECT_GT(max_difference(before.narrow(0, 5, 3), after.narrow(0, 5, 3)), 1e-3);
}

// Documents of 3 and 5 tokens in the first sample, of 6 and 2 in the second.
TEST(Gpt, PackedDocumentsGiveTheLogitsOfEachAlone) {
  const auto gpt = filled_gpt(small_config().model);
  const at::Tensor tokens = some_tokens(2, 8, 31);
  const reference::Packing packing{
      at::tensor({0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1}, at::kLong).view({2, 8}),
      at::tensor({0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1}, at::kLong).view({2, 8})};
  const at::Tensor packed = gpt->forward(tokens, packing);  // [S, B, V]
  const auto expect_alone = [&](std::int64_t sample, std::int64_t start, std::int64_t length) {
    const at::Tensor alone =
        gpt->forward(tokens.narrow(0, sample, 1).narrow(1, start, length));  // [length, 1, V]
    EXPECT_LT(max_difference(packed.narrow(0, start, length).narrow(1, sample, 1), alone), 1e-13);
  };
  expect_alone(0, 0, 3);
  expect_alone(0, 3, 5);
  expect_alone(1, 0, 6);
  expect_alone(1, 6, 2);
  EXPECT_GT(max_difference(packed, gpt->forward(tokens)), 1e-3);
}

// BF16 keeps 8 significant bits: a rounding is up to 2^-9 = 0.002, a gradient sees dozens of them.
TEST(Gpt, PrecisionsAgreeWithinTheirRoundOff) {
  const auto f64 = filled_gpt(small_config().model, Precision::kF64);
  const auto f32 = filled_gpt(small_config().model, Precision::kF32);
  const auto bf16 = filled_gpt(small_config().model, Precision::kBf16);
  const double loss = forward_backward(*f64, 1);
  EXPECT_NEAR(forward_backward(*f32, 1), loss, 1e-5);
  EXPECT_NEAR(forward_backward(*bf16, 1), loss, 2e-2);
  const auto exact = gradients(*f64);
  const auto single = gradients(*f32);
  const auto half = gradients(*bf16);
  for (const auto& [name, gradient] : exact) {
    EXPECT_EQ(half.at(name).scalar_type(), at::kBFloat16) << name;
    EXPECT_LT(relative_difference(single.at(name), gradient), 1e-5) << name;
    EXPECT_LT(relative_difference(half.at(name), gradient), 5e-2) << name;
  }
}

}  // namespace
}  // namespace ttrace::testing
