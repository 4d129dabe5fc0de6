// Programs on the fake device compute what they compute on the CPU, with the same operators.
#include "fake_device/fixture.h"

#include <ATen/record_function.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ttrace::testing::fake {
namespace {

// ---- training ----

struct Layer : torch::nn::Module {
  explicit Layer(std::int64_t width)
      : norm_in(
            register_module("norm_in", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        norm_mlp(register_module("norm_mlp",
                                 torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 2 * width))),
        down(register_module("down", torch::nn::Linear(2 * width, width))) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::vector<at::Tensor> parts = qkv(norm_in(x)).chunk(3, -1);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({x.size(0), x.size(1), 2, -1}).transpose(1, 2);
    };
    const at::Tensor attended = at::scaled_dot_product_attention(
        heads(parts[0]), heads(parts[1]), heads(parts[2]), {}, 0.1, true);
    const at::Tensor y =
        x + at::dropout(out(attended.transpose(1, 2).reshape(x.sizes())), 0.1, true);
    return y + down(at::gelu(up(norm_mlp(y))));
  }

  torch::nn::LayerNorm norm_in;
  torch::nn::Linear qkv, out;
  torch::nn::LayerNorm norm_mlp;
  torch::nn::Linear up, down;
};

struct Transformer : torch::nn::Module {
  Transformer()
      : embedding(register_module("embedding", torch::nn::Embedding(11, 8))),
        first(register_module("first", std::make_shared<Layer>(8))),
        second(register_module("second", std::make_shared<Layer>(8))),
        head(register_module("head", torch::nn::Linear(8, 11))) {}

  at::Tensor loss(const at::Tensor& tokens, const at::Tensor& labels) {
    const at::Tensor logits = head(second->forward(first->forward(embedding(tokens))));
    return at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten());
  }

  torch::nn::Embedding embedding;
  std::shared_ptr<Layer> first, second;
  torch::nn::Linear head;
};

// Losses, gradients and parameters of two steps, on the CPU.
std::vector<at::Tensor> train(c10::Device where, at::ScalarType type) {
  at::manual_seed(3);
  Transformer model;
  model.to(type);
  for (const at::Tensor& parameter : model.parameters()) {
    move_to(parameter, where);
  }
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  std::vector<at::Tensor> result;
  for (int step = 0; step < 2; ++step) {
    const at::Tensor tokens = at::randint(11, {2, 5}, at::kLong).to(where, /*non_blocking=*/true);
    optimizer.zero_grad();
    const at::Tensor loss = model.loss(tokens, tokens.roll(1, 1));
    loss.backward();
    result.push_back(loss.detach());
    for (const at::Tensor& parameter : model.parameters()) {
      result.push_back(parameter.grad().clone());
    }
    optimizer.step();
  }
  for (const at::Tensor& parameter : model.parameters()) {
    result.push_back(parameter.detach());
  }
  for (at::Tensor& tensor : result) {
    tensor = tensor.to(at::kCPU);
  }
  return result;
}

void expect_same(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t index = 0; index < left.size(); ++index) {
    ASSERT_TRUE(same_bits(left[index], right[index])) << "tensor " << index;
  }
}

TEST_F(FakeDeviceTest, TrainsToTheBitsOfTheCpuInAnyOrder) {
  const std::vector<at::Tensor> expected = train(at::kCPU, at::kFloat);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    reset(seed);
    expect_same(train(device(), at::kFloat), expected);
  }
  EXPECT_EQ(counters().other_waits, 0U);
  EXPECT_EQ(counters().device_waits, 0U);
}

TEST_F(FakeDeviceTest, TrainsUnderAllPoliciesAndInAllTypes) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const std::vector<at::Tensor> expected = train(at::kCPU, type);
    for (const Policy policy : {Policy::kSeeded, Policy::kLazy, Policy::kEager}) {
      reset(1, policy);
      expect_same(train(device(1), type), expected);
      EXPECT_EQ(memory(0).allocations, 0U);
      EXPECT_GT(memory(1).reuses, memory(1).allocations / 2);
    }
  }
}

TEST_F(FakeDeviceTest, RunsFunctionsOfManyKinds) {
  const at::Tensor a = at::randn({4, 6});
  const at::Tensor square = at::randn({5, 5}) + 5 * at::eye(5);
  const at::Tensor index = at::tensor({3, 0, 2}, at::kLong);
  using Function = std::function<at::Tensor(const std::function<at::Tensor(const at::Tensor&)>&)>;
  const std::vector<Function> functions = {
      [&](auto on) { return on(a).add(on(a).select(0, 1), 2.5).mul_(3); },
      [&](auto on) { return at::softmax(on(a).to(at::kBFloat16), -1); },
      [&](auto on) { return on(a).index_select(0, on(index)); },
      [&](auto on) { return on(a).index({on(index)}); },
      [&](auto on) { return on(a).index({index}); },
      [&](auto on) { return on(a).index({on(a) > 0}); },
      [&](auto on) { return on(a).masked_select(on(a) > 0); },
      [&](auto on) { return at::nonzero(on(a) > 0); },
      [&](auto on) { return on(a).index_put_({on(a) > 0}, on(at::tensor(2.0F))); },
      [&](auto on) { return std::get<0>(at::_unique2(on(index))); },
      [&](auto on) { return at::where(on(a) > 0, on(a), -1.0); },
      [&](auto on) {
        return at::cat({on(a), on(a).t().reshape({4, 6})}, 1).cumsum(1);
      },
      [&](auto on) { return at::matmul(on(a), on(a).t()).std(1); },
      [&](auto on) { return std::get<1>(on(a).topk(2, 1)) + on(at::arange(2)); },
      [&](auto on) { return at::linalg_inv(on(square)); },
      [&](auto on) { return at::linalg_cholesky(on(square).matmul(on(square).t())); },
      [&](auto on) { return at::multinomial(on(a).abs(), 3); },
      [&](auto on) { return std::get<0>(at::native_dropout(on(a), 0.5, true)); },
      [&](auto on) {
        return on(a).clone().normal_().add(on(at::randn({4, 6})));
      },
      [&](auto on) { return at::randperm(9, on(a).options().dtype(at::kLong)); },
      [&](auto on) { return at::arange(0, 7, 2, on(a).options()); },
      [&](auto on) {
        return at::tril(at::ones({4, 4}, on(a).options()));
      },
      [&](auto on) {
        return at::view_as_real(at::view_as_complex(on(a).view({4, 3, 2})).conj().mul(2));
      },
      [&](auto on) { return on(a).unfold(1, 3, 2).sum(-1, true).resize_({8}); },
      [&](auto on) {
        at::Tensor out = at::empty({0}, on(a).options());
        return at::sum_out(out, on(a), 1);
      },
      [&](auto on) { return at::clamp(on(a), c10::Scalar(on(a).max().item()), {}); },
      [&](auto on) {
        return at::empty_like(on(a)).copy_(on(a).t().contiguous().t()).fill_(3).zero_();
      }};
  for (std::size_t number = 0; number < functions.size(); ++number) {
    SCOPED_TRACE("function " + std::to_string(number));
    reset(number);
    at::manual_seed(number);
    const at::Tensor expected = functions[number]([](const at::Tensor& x) { return x.clone(); });
    at::manual_seed(number);
    const at::Tensor result =
        functions[number]([](const at::Tensor& x) { return x.to(device(), true); });
    EXPECT_EQ(result.device(), device());
    EXPECT_TRUE(same_bits(result, expected));
  }
}

TEST_F(FakeDeviceTest, RunsListsOfTensorsInPlace) {
  const auto run = [](c10::Device where) {
    at::manual_seed(5);
    std::vector<at::Tensor> parameters, gradients, means, squares, steps;
    for (int item = 0; item < 3; ++item) {
      parameters.push_back(at::randn({3, item + 1}).to(where));
      gradients.push_back(at::randn({3, item + 1}).to(where));
      means.push_back(at::zeros_like(parameters.back()));
      squares.push_back(at::zeros_like(parameters.back()));
      steps.push_back(at::ones({}, parameters.back().options()));
    }
    at::_foreach_lerp_(means, gradients, 0.1);
    at::_foreach_mul_(squares, 0.9);
    at::_foreach_addcmul_(squares, gradients, gradients, 0.1);
    at::_foreach_addcdiv_(
        parameters, means, at::_foreach_add(at::_foreach_sqrt(squares), 1e-8), -0.1);
    at::_fused_adamw_(
        parameters, gradients, means, squares, {}, steps, 0.1, 0.9, 0.99, 0.01, 1e-8, false, false);
    parameters.push_back(at::stack(at::_foreach_norm(parameters)));
    return parameters;
  };
  const std::vector<at::Tensor> expected = run(at::kCPU);
  const std::vector<at::Tensor> result = run(device());
  EXPECT_EQ(counters().other_waits, 0U);
  expect_same(result, expected);
}

// The operators that the program itself calls, of all threads, in order.
std::vector<std::string> operators_of_training(c10::Device where) {
  static std::mutex mutex;
  static std::vector<std::string> names;
  static thread_local int depth = 0;
  const auto enter = [](const at::RecordFunction& call) -> std::unique_ptr<at::ObserverContext> {
    const std::unique_lock lock(mutex);
    if (depth++ == 0) {
      names.emplace_back(call.name());
    }
    return nullptr;
  };
  const auto leave = [](const at::RecordFunction&, at::ObserverContext*) { --depth; };
  names.clear();
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
  train(where, at::kFloat);
  at::removeCallback(handle);
  return names;
}

TEST_F(FakeDeviceTest, CallsTheOperatorsThatTheCpuCalls) {
  EXPECT_EQ(operators_of_training(device()), operators_of_training(at::kCPU));
}

}  // namespace
}  // namespace ttrace::testing::fake
