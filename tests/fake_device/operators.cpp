// Operators of the fake device that enqueue torch's CPU kernel, on CPU tensors that alias the
// device's memory. Every operator that has a CPU kernel and none in kernels.cpp gets one here, so
// that the program's operators decompose as they do on the CPU.
#include "fake_device/host_alias.h"
#include "fake_device/runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ttrace::testing::fake {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// One call: what was given, and where it runs.
struct Call {
  c10::OperatorHandle op;
  Values arguments;
  c10::Device device;

  [[nodiscard]] const c10::FunctionSchema& schema() const { return op.schema(); }
  [[nodiscard]] const c10::Argument& declared(std::size_t index) const {
    return schema().arguments()[index];
  }
};

// What an operator will make, as tensors without memory: its results, and `out` arguments, which
// may change their shape.
struct Shapes {
  Values returns;
  Values outs;  // by argument
};

bool writes(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

std::vector<at::Tensor> tensors_of(const IValue& value) {
  std::vector<at::Tensor> result;
  if (value.isTensor()) {
    result.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    result = value.toTensorVector();
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      result.push_back(tensor.value_or(at::Tensor()));
    }
  }
  return result;
}

// The same value with other tensors; undefined ones stay.
template <class Map>
IValue map_tensors(const IValue& value, const Map& map) {
  const auto mapped = [&map](const at::Tensor& tensor) {
    return tensor.defined() ? map(tensor) : tensor;
  };
  if (value.isTensor()) {
    return mapped(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      result.push_back(mapped(tensor));
    }
    return result;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> result;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      result.push_back(tensor ? std::optional(mapped(*tensor)) : std::nullopt);
    }
    return result;
  }
  return value.isDevice() && value.toDevice().type() == kType ? IValue(c10::Device(at::kCPU))
                                                              : value;
}

// The device of the tensors, or the one that a factory was told.
c10::Device device_of(const c10::OperatorHandle& op, const Values& arguments) {
  std::optional<c10::Device> result;
  for (const IValue& value : arguments) {
    for (const at::Tensor& tensor : tensors_of(value)) {
      if (tensor.defined() && tensor.device().type() == kType) {
        TORCH_CHECK(!result || *result == tensor.device(),
                    op.operator_name(),
                    " was given tensors on ",
                    *result,
                    " and ",
                    tensor.device());
        result = tensor.device();
      }
    }
  }
  for (const IValue& value : arguments) {
    if (!result && value.isDevice() && value.toDevice().type() == kType) {
      result = value.toDevice();
    }
  }
  TORCH_CHECK(result, op.operator_name(), " was given no tensor on a fake device");
  return result->has_index() ? *result : c10::impl::getDeviceGuardImpl(kType)->getDevice();
}

// A CPU tensor among device tensors: its value is read now, as a GPU's launch does.
at::Tensor host_argument(const Call& call, std::size_t index, const at::Tensor& tensor) {
  const std::string& name = call.op.operator_name().name;
  const bool is_index = name.find("index") != std::string::npos;
  TORCH_CHECK((tensor.dim() == 0 || is_index) && !writes(call.declared(index)),
              "Expected all tensors to be on the same device, but ",
              name,
              " was given one on ",
              tensor.device(),
              " beside ",
              call.device);
  at::Tensor copy = tensor.clone();
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    copy.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return copy;
}

// Arguments for the CPU kernel; `map` says what takes the place of a device tensor.
template <class Map>
Values on_host(const Call& call, const Map& map) {
  Values result;
  for (std::size_t index = 0; index < call.arguments.size(); ++index) {
    result.push_back(map_tensors(call.arguments[index], [&](const at::Tensor& tensor) {
      return tensor.device().type() == kType ? map(tensor, call.declared(index))
                                             : host_argument(call, index, tensor);
    }));
  }
  return result;
}

// ---- shapes ----

at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kMeta));
}

at::Tensor allocate(const at::Tensor& like) {
  return at::detail::empty_strided_generic(
      like.sizes(), like.strides(), &device_allocator(), kFakeKeys, like.scalar_type());
}

// Runs the operator on zeros of the same shapes. Torch's shape functions in C++ do not cover all
// operators, and this gives the very strides of the CPU kernel. Zeros are valid indices.
Shapes try_on_zeros(const Call& call) {
  Values arguments = on_host(call, [](const at::Tensor& tensor, const c10::Argument&) {
    at::Tensor zeros =
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
    std::fill_n(static_cast<char*>(zeros.storage().mutable_data()), zeros.storage().nbytes(), 0);
    return zeros;
  });
  Shapes shapes{arguments, {}};
  call.op.redispatchBoxed(kCpu, &shapes.returns);
  for (IValue& value : shapes.returns) {
    value = map_tensors(value, without_memory);
  }
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    const bool out = call.declared(index).is_out();
    shapes.outs.push_back(out ? map_tensors(arguments[index], without_memory) : IValue());
  }
  return shapes;
}

// All that shapes can depend on, as text.
std::string signature(const Call& call) {
  std::ostringstream key;
  key << call.op.operator_name();
  for (const IValue& value : call.arguments) {
    key << ' ' << value.tagKind();
    if (!value.isTensor() && !value.isTensorList() && !value.isOptionalTensorList()) {
      key << value;
      continue;
    }
    for (const at::Tensor& tensor : tensors_of(value)) {
      key << '|';
      if (tensor.defined()) {
        key << tensor.scalar_type() << tensor.sizes() << tensor.strides()
            << tensor.unsafeGetTensorImpl()->is_wrapped_number();
      }
    }
  }
  return key.str();
}

// Returns nothing if zeros are no valid input, as for the inverse of a matrix.
std::optional<Shapes> shapes_of(const Call& call) {
  const auto& returns = call.schema().returns();
  const auto& declared = call.schema().arguments();
  if (std::all_of(returns.begin(), returns.end(), writes) &&
      std::none_of(
          declared.begin(), declared.end(), [](const auto& item) { return item.is_out(); })) {
    return Shapes{Values(returns.size()), Values(declared.size())};
  }
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<std::string, Shapes>();
  const std::string key = signature(call);
  const std::unique_lock lock(mutex);
  if (const auto found = known->find(key); found != known->end()) {
    return found->second;
  }
  try {
    return known->emplace(key, try_on_zeros(call)).first->second;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// ---- results ----

void reshape(const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.sizes() != like.sizes()) {
    tensor.resize_(like.sizes());
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  }
}

// A written argument is returned itself.
const IValue& returned_argument(const Call& call, const c10::Argument& result) {
  for (std::size_t index = 0; index < call.arguments.size(); ++index) {
    const c10::AliasInfo* const alias = call.declared(index).alias_info();
    if (alias != nullptr && *alias == *result.alias_info()) {
      return call.arguments[index];
    }
  }
  TORCH_CHECK(false, call.op.operator_name(), " returns an argument that it does not declare");
}

// The values of a host tensor arrive in the device's memory in the order of the stream.
void deliver(const at::Tensor& values, const at::Tensor& target) {
  executor().enqueue(
      current_stream(target.device()), "deliver", [values, alias = HostAliases().of(target)] {
        const KernelScope scope;
        alias.copy_(values);
      });
}

// Waits first, if `waits`, and runs the kernel at once. Its results are delivered by the stream.
Values run_now(const Call& call, bool waits) {
  std::vector<std::pair<at::Tensor, at::Tensor>> written;  // device, host
  HostAliases aliases;
  const Values arguments =
      on_host(call, [&](const at::Tensor& tensor, const c10::Argument& declared) {
        const at::TensorOptions options = tensor.options().device(at::kCPU);
        if (declared.is_out()) {
          written.emplace_back(tensor, at::empty({0}, options));
        } else if (writes(declared) && !waits) {
          written.emplace_back(tensor,
                               at::empty_strided(tensor.sizes(), tensor.strides(), options));
        } else {
          return aliases.of(tensor);
        }
        return written.back().second;
      });
  Values returns = arguments;
  call.op.redispatchBoxed(kCpu, &returns);
  for (const auto& [tensor, values] : written) {
    reshape(tensor, values);
    deliver(values, tensor);
  }
  for (std::size_t index = 0; index < returns.size(); ++index) {
    const c10::Argument& declared = call.schema().returns()[index];
    returns[index] = writes(declared) ? returned_argument(call, declared)
                                      : map_tensors(returns[index], [](const at::Tensor& values) {
                                          at::Tensor result = allocate(values);
                                          deliver(values, result);
                                          return result;
                                        });
  }
  return returns;
}

// The kernel's results go to the memory that was made for them. Written arguments are there
// already.
void run_kernel(const c10::OperatorHandle& op,
                const Values& arguments,
                const std::vector<at::Tensor>& targets) {
  const KernelScope scope;
  Values results = arguments;
  op.redispatchBoxed(kCpu, &results);
  auto target = targets.begin();
  for (std::size_t index = 0; index < results.size(); ++index) {
    for (const at::Tensor& tensor : tensors_of(results[index])) {
      if (tensor.defined() && !writes(op.schema().returns()[index])) {
        (target++)->copy_(tensor);
      }
    }
  }
}

// Makes room for the results and enqueues the kernel.
Values run_later(const Call& call, const Shapes& shapes) {
  for (std::size_t index = 0; index < call.arguments.size(); ++index) {
    const std::vector<at::Tensor> outs = tensors_of(call.arguments[index]);
    const std::vector<at::Tensor> like = tensors_of(shapes.outs[index]);
    for (std::size_t item = 0; item < like.size(); ++item) {
      reshape(outs[item], like[item]);
    }
  }
  HostAliases aliases;
  Values arguments = on_host(
      call, [&](const at::Tensor& tensor, const c10::Argument&) { return aliases.of(tensor); });
  std::vector<at::Tensor> targets;
  Values returns;
  for (std::size_t index = 0; index < shapes.returns.size(); ++index) {
    const c10::Argument& declared = call.schema().returns()[index];
    returns.push_back(writes(declared)
                          ? returned_argument(call, declared)
                          : map_tensors(shapes.returns[index], [&](const at::Tensor& like) {
                              at::Tensor result = allocate(like);
                              targets.push_back(aliases.of(result));
                              return result;
                            }));
  }
  executor().enqueue(
      current_stream(call.device),
      c10::toString(call.op.operator_name()),
      [op = call.op, arguments = std::move(arguments), targets = std::move(targets)] {
        run_kernel(op, arguments, targets);
      });
  return returns;
}

// ---- which way an operator goes ----

// Views, and operators that only exchange the storage of a tensor: their CPU kernels touch no
// values.
bool only_metadata(const c10::FunctionSchema& schema) {
  const auto& returns = schema.returns();
  return schema.name() == "aten::set_" || schema.name() == "aten::is_set_to" ||
         std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
           return result.alias_info() != nullptr && !result.alias_info()->isWrite();
         });
}

// The host must know values to go on. Indexing must where a mask says how many elements there are.
bool depends_on_values(const Call& call) {
  const auto& returns = call.schema().returns();
  const bool scalars = std::any_of(returns.begin(), returns.end(), [](const c10::Argument& result) {
    return !result.type()->isSubtypeOf(*c10::TensorType::get()) &&
           !result.type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
  if (scalars || call.op.hasTag(at::Tag::data_dependent_output)) {
    return true;
  }
  if (call.schema().name() != "aten::index") {
    return call.op.hasTag(at::Tag::dynamic_output_shape);
  }
  const std::vector<at::Tensor> indices = tensors_of(call.arguments[1]);
  return std::any_of(indices.begin(), indices.end(), [](const at::Tensor& index) {
    return index.defined() &&
           (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
  });
}

bool reads_device(const Call& call) {
  for (std::size_t index = 0; index < call.arguments.size(); ++index) {
    for (const at::Tensor& tensor : tensors_of(call.arguments[index])) {
      if (tensor.defined() && tensor.device().type() == kType && !writes(call.declared(index))) {
        return true;
      }
    }
  }
  return false;
}

Values run(const Call& call) {
  const StreamKey stream = current_stream(call.device);
  // Random numbers are drawn from the CPU's generator when the program asks for them.
  if (call.op.hasTag(at::Tag::nondeterministic_seeded)) {
    const bool waits = reads_device(call);
    if (waits) {
      executor().wait_for_operator(stream);
    }
    return run_now(call, waits);
  }
  if (depends_on_values(call)) {
    executor().wait_stream(stream);
    return run_now(call, true);
  }
  if (const std::optional<Shapes> shapes = shapes_of(call)) {
    return run_later(call, *shapes);
  }
  executor().wait_for_operator(stream);
  return run_now(call, true);
}

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (only_metadata(op.schema())) {
    op.redispatchBoxed(kCpu, stack);
    return;
  }
  const KernelScope scope;
  Values arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  const c10::Device device = device_of(op, arguments);
  const c10::DeviceGuard guard(device);
  for (IValue& result : run({op, std::move(arguments), device})) {
    stack->push_back(std::move(result));
  }
}

}  // namespace

void register_operators() {
  constexpr auto kKey = c10::DispatchKey::PrivateUse1;
  static auto* const table =
      new torch::Library(torch::Library::IMPL, "aten", kKey, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op && name.name.starts_with("aten::") &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && !op->hasKernelForDispatchKey(kKey)) {
      table->impl(c10::toString(name).c_str(),
                  torch::CppFunction::makeFromBoxedFunction<&run_operator>());
    }
  }
  static auto* const others =
      new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

}  // namespace ttrace::testing::fake
