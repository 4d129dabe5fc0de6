#include "hooks/session/numerics.h"

#include "trace/base/numerics.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

namespace ttrace {
namespace {

std::string on_or_off(bool on) {
  return on ? "on" : numerics::kOff;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Of "cuda" or "mkldnn", and of "matmul" or "conv".
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 10
std::string float32_precision(const std::string& backend, const std::string& operation) {
  return at::globalContext().float32Precision(backend, operation);
}
bool tf32_in_cudnn() {
  return at::globalContext().allowTF32CuDNN("conv");
}
#else
std::string float32_precision(const std::string& backend, const std::string& operation) {
  return at::precision2str(
      at::globalContext().float32Precision(at::str2backend(backend), at::str2op(operation)));
}
bool tf32_in_cudnn() {
  return at::globalContext().allowTF32CuDNN(at::Float32Op::CONV);
}
#endif

// "ieee", which is what nobody's choice means, "tf32" or "bf16".
std::string precision_text(const std::string& backend, const std::string& operation) {
  const std::string precision = float32_precision(backend, operation);
  return precision == "none" ? "ieee" : precision;
}

// Whether sums over parts of a product may be rounded to the operands' type. Torch had a bool here
// before it distinguished split sums.
template <class Option>
std::string reduction_text(Option option) {
  if constexpr (std::is_same_v<Option, bool>) {
    return on_or_off(option);
  } else {
    return on_or_off(static_cast<int>(option) == 0);
  }
}

// The libraries obey NVIDIA_TF32_OVERRIDE whatever torch asks them for.
std::string products_on_cuda() {
  const std::string_view forced = variable("NVIDIA_TF32_OVERRIDE");
  const bool asked = precision_text("cuda", "matmul") == "tf32";
  return forced == "1" || (asked && forced != "0") ? numerics::kTf32 : numerics::kF32;
}

at::Tensor filled(std::int64_t size, float value) {
  at::Tensor tensor = at::detail::empty_cpu({size, size}, at::kFloat);
  std::fill_n(tensor.mutable_data_ptr<float>(), tensor.numel(), value);
  return tensor;
}

// Measured, because a setting acts only where the processor has the instructions for it. The kernel
// is called below the dispatcher, so no mode of the program sees it.
std::string products_on_cpu() {
  constexpr std::int64_t kSize = 24;          // 16 is too small to be rounded, 64 starts threads
  constexpr float kOfTf32 = 1.0F / (1 << 9);  // an addend that TF32 keeps and BF16 does not
  constexpr float kOfF32 = 1.0F / (1 << 13);  // and one that TF32 does not keep
  const at::Tensor product =
      at::cpu::mm(filled(kSize, 1.0F + kOfTf32 + kOfF32), filled(kSize, 1.0F));
  const float excess = *product.const_data_ptr<float>() / static_cast<float>(kSize) - 1.0F;
  return excess > kOfTf32 + kOfF32 / 2 ? numerics::kF32
         : excess > kOfTf32 / 2        ? numerics::kTf32
                                       : numerics::kBf16;
}

// Asks the processor, because torch keeps no note of it.
bool flushes_denormals() {
  volatile float smallest = std::numeric_limits<float>::min();
  volatile float half = smallest * 0.5F;
  return half == 0.0F;
}

// Where a library or torch itself reads a variable of the environment.
void add_variables(Section& facts) {
  for (const char* name :
       {"CUBLAS_WORKSPACE_CONFIG", "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"}) {
    if (const std::string_view value = variable(name); !value.empty()) {
      facts[numerics::kCudaPrefix + std::string(name)] = value;
    }
  }
}

// The version of the library that runs, if torch distinguishes it from the one that torch was built
// with.
template <class Hooks>
long cudnn_version(const Hooks& cuda) {
  if constexpr (requires { cuda.versionRuntimeCuDNN(); }) {
    return cuda.versionRuntimeCuDNN();
  } else {
    return cuda.versionCuDNN();
  }
}

}  // namespace

Section numerics_of(c10::DeviceType device) {
  const at::Context& context = at::globalContext();
  const std::string products = device == c10::DeviceType::CPU    ? products_on_cpu()
                               : device == c10::DeviceType::CUDA ? products_on_cuda()
                                                                 : std::string(numerics::kF32);
  const std::string deterministic = !context.deterministicAlgorithms()          ? numerics::kOff
                                    : context.deterministicAlgorithmsWarnOnly() ? "warn"
                                                                                : "on";
  Section facts;
  facts[numerics::kDevice] = c10::DeviceTypeName(device, /*lower_case=*/true);
  facts[numerics::kProducts] = products;
  facts[numerics::kThreads] = std::to_string(at::get_num_threads());
  facts[numerics::kDeterministic] = deterministic;
  facts["flush_denormal"] = on_or_off(flushes_denormals());
  facts["mkldnn_matmul"] = precision_text("mkldnn", "matmul");
  facts["mkldnn_conv"] = precision_text("mkldnn", "conv");
  facts["cuda_matmul"] = precision_text("cuda", "matmul");
  facts["cuda_cudnn_tf32"] = on_or_off(tf32_in_cudnn());
  facts["cuda_cudnn_deterministic"] = on_or_off(context.deterministicCuDNN());
  facts["cuda_cudnn_benchmark"] = on_or_off(context.benchmarkCuDNN());
  facts["cuda_bf16_reduction"] = reduction_text(context.allowBF16ReductionCuBLAS());
  facts["cuda_fp16_reduction"] = reduction_text(context.allowFP16ReductionCuBLAS());
  add_variables(facts);
  return facts;
}

Section library_versions(c10::DeviceType device) {
  Section versions;
  const at::CUDAHooksInterface& cuda = at::detail::getCUDAHooks();
  if (device != c10::DeviceType::CUDA || !cuda.hasCUDART()) {
    return versions;
  }
  versions["cuda"] = std::to_string(cuda.versionCUDART());
  if (cuda.compiledWithCuDNN()) {
    versions["cudnn"] = std::to_string(cudnn_version(cuda));
  }
  return versions;
}

}  // namespace ttrace
