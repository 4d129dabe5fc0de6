#include "hooks/capture/random_operator.h"

#include "hooks/base/ivalue_tensors.h"
#include "hooks/base/snapshot.h"
#include "hooks/base/tensor_access.h"
#include "hooks/nudge/operator_name.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mul.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace ttrace {
namespace {

constexpr std::string_view kDropout = "aten::native_dropout";

// By no operator: one would do what the program's modes make of it.
std::vector<std::uint64_t> state_of(at::CPUGeneratorImpl& generator) {
  const at::mt19937 engine = generator.engine();
  const at::mt19937_data_pod data = engine.data();
  std::vector<std::uint64_t> state(data.state_.begin(), data.state_.end());
  const auto next_float = generator.next_float_normal_sample();  // normal numbers come in pairs
  const auto next_double = generator.next_double_normal_sample();
  state.push_back(data.seed_);
  state.push_back(data.next_);
  state.push_back(static_cast<std::uint64_t>(data.left_));
  state.push_back((next_float ? 1U : 0U) + (next_double ? 2U : 0U));
  return state;
}

// Empty where the device does not say.
std::vector<std::uint64_t> state_of(at::Generator generator) {
  try {
    const std::lock_guard lock(generator.mutex());
    if (generator.device().is_cpu()) {
      return state_of(*at::check_generator<at::CPUGeneratorImpl>(generator));
    }
    return {generator.current_seed(), generator.get_offset()};
  } catch (const c10::Error&) {
    return {};
  }
}

}  // namespace

GeneratorStates::GeneratorStates(c10::ArrayRef<c10::Device> devices,
                                 c10::ArrayRef<at::Generator> own) {
  std::vector<at::Generator> generators(own.begin(), own.end());
  for (const c10::Device& device : devices) {
    if (device.is_cpu() || device.is_cuda()) {
      generators.push_back(at::globalContext().defaultGenerator(device));
    }
  }
  for (at::Generator& generator : generators) {
    std::vector<std::uint64_t> state = state_of(generator);
    known_.push_back({std::move(generator), std::move(state)});
  }
}

bool GeneratorStates::have_moved() const {
  return std::ranges::any_of(known_, [](const Known& known) {
    return known.state.empty() || state_of(known.generator) != known.state;
  });
}

GeneratorStates RandomOperator::states_of(c10::ArrayRef<const c10::IValue> inputs) {
  c10::SmallVector<at::Generator, 1> own;
  c10::SmallVector<c10::Device, 2> devices = {c10::Device(c10::DeviceType::CPU)};
  for (const c10::IValue& input : inputs) {
    if (input.isGenerator()) {
      own.push_back(input.toGenerator());
    }
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      const bool is_known = std::ranges::find(devices, tensor.device()) != devices.end();
      if (!is_known && unreadable(tensor) != kInGraph) {
        devices.push_back(tensor.device());
      }
    });
  }
  return {devices, own};
}

RandomOperator::RandomOperator(std::string_view name,
                               c10::ArrayRef<const c10::IValue> inputs,
                               const OperatorEffects& effects)
    : states_(states_of(inputs)),
      is_of_torch_(name.starts_with("aten::")),
      is_mask_(name == kDropout || base_name(name).starts_with("bernoulli")) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (effects.writes_argument(i)) {
      for_each_tensor(inputs[i], [&](const at::Tensor& tensor) { written_.push_back(tensor); });
    }
  }
  if (name == kDropout && inputs.size() > 1 && inputs[0].isTensor() && inputs[1].isDouble()) {
    dropped_ = inputs[0].toTensor();
    probability_ = inputs[1].toDouble();
  }
}

at::Tensor RandomOperator::draw_among(const std::vector<c10::IValue>& outputs) const {
  std::vector<at::Tensor> results;
  for (const c10::IValue& output : outputs) {
    for_each_tensor(output, [&](const at::Tensor& tensor) { results.push_back(tensor); });
  }
  if (dropped_.defined() && results.size() == 2) {
    return results[1];
  }
  const bool is_all =
      is_of_torch_ && results.size() == 1 && std::ranges::all_of(written_, [&](const auto& other) {
        return other.is_alias_of(results.front());
      });
  return is_all ? results.front() : at::Tensor();
}

void RandomOperator::apply(const at::Tensor& draw, const std::vector<c10::IValue>& outputs) const {
  if (!dropped_.defined()) {
    return;
  }
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  // As the kernel computes: in the type in which it adds up, with one rounding at the end.
  const at::ScalarType wide =
      dropped_.scalar_type() == at::kDouble ? at::kDouble : at::ScalarType::Float;
  const double scale = probability_ == 1.0 ? 0.0 : 1.0 / (1.0 - probability_);
  first_tensor(outputs).variable_data().copy_(dropped_.to(wide).mul(draw).mul(scale));
}

}  // namespace ttrace
