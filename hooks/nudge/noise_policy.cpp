#include "hooks/nudge/noise_policy.h"

#include "hooks/base/tensor_access.h"
#include "hooks/device/kernel_registry.h"
#include "trace/base/random.h"
#include "trace/kernels/digest.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/graph_task.h>

namespace ttrace {
namespace {

// Where the counters of random numbers start; those of operators start at 0.
constexpr std::uint64_t kOpaque = std::uint64_t{1} << 62;
constexpr std::uint64_t kOrders = std::uint64_t{1} << 63;

// An expanded tensor shows one element several times; it is a view whose base is perturbed.
bool overlaps(const at::Tensor& tensor) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) {
      return true;
    }
  }
  return false;
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense();
}

// On the current stream, and without a wait. The elements of a tensor with gaps are moved in
// row-major order, in a copy. What `exact` says is exact is put back.
void perturb_on_device(const DeviceKernels& kernels,
                       ElementType type,
                       NoiseClass noise,
                       std::uint64_t seed,
                       const at::Tensor& exact,
                       const at::Tensor& tensor) {
  const Unobserved unobserved;
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard device(tensor.device());
  const at::Tensor values = tensor.variable_data();  // has a version counter of its own
  const at::Tensor before = exact.defined() ? values.clone() : at::Tensor();
  const at::Tensor dense = is_dense(values) ? values : values.contiguous();
  kernels.perturb(type, noise, seed, dense.numel(), dense.mutable_data_ptr());
  if (!dense.is_same(values)) {
    values.copy_(dense);
  }
  if (exact.defined()) {
    values.copy_(at::where(exact, before, values));
  }
}

}  // namespace

void NoisePolicy::begin_step(std::int64_t step) {
  step_seed_ = random_bits(seed_, static_cast<std::uint64_t>(step));
  ordinal_ = 0;
  opaque_ordinal_ = 0;
  training_thread_ = std::this_thread::get_id();
}

bool NoisePolicy::concerns_this_thread() const {
  return std::this_thread::get_id() == training_thread_ ||
         torch::autograd::get_current_graph_task_id() != -1;
}

std::uint64_t NoisePolicy::seed_of(const void* values,
                                   std::size_t bytes,
                                   std::uint64_t number) const {
  return random_bits(
      step_seed_, among_ranks_ ? digest_of(values, static_cast<std::int64_t>(bytes)).low : number);
}

bool NoisePolicy::apply(const at::Tensor& tensor, NoiseClass noise, const WholeReads& reads) {
  return move(tensor, noise, reads, 0, ordinal_);
}

bool NoisePolicy::apply_to_opaque(const at::Tensor& tensor, NoiseClass noise) {
  return move(tensor, noise, {}, kOpaque, opaque_ordinal_);
}

bool NoisePolicy::move(const at::Tensor& tensor,
                       NoiseClass noise,
                       const WholeReads& reads,
                       std::uint64_t first,
                       std::atomic<std::uint64_t>& ordinal) const {
  if (!unreadable(tensor).empty() || tensor.numel() == 0 || overlaps(tensor)) {
    return false;
  }
  const ElementType type = element_type_of(tensor).value();
  if (!is_floating(type)) {
    return false;
  }
  const std::uint64_t number = first + ordinal++;
  const at::Tensor exact = tensor.is_cpu() ? at::Tensor() : exact_on_device(tensor, reads);
  if (const DeviceKernels* const kernels = kernels_of(tensor.device())) {
    // What a digest is, the host would have to wait for: shards have equal noise here.
    perturb_on_device(*kernels, type, noise, random_bits(step_seed_, number), exact, tensor);
    return true;
  }
  if (exact.defined() ? exact.item<bool>() : tensor.is_cpu() && is_exact(tensor, noise, reads)) {
    return true;
  }
  const bool in_order_of_memory = is_dense(tensor);
  if (tensor.is_cpu() && in_order_of_memory) {
    perturb(type,
            noise,
            seed_of(tensor.const_data_ptr(), tensor.nbytes(), number),
            tensor.numel(),
            tensor.mutable_data_ptr());
    return true;
  }
  at::Tensor values = tensor.variable_data();  // has a version counter of its own
  if (in_order_of_memory) {
    values = values.as_strided({values.numel()}, {1});  // in the order of memory, as on the CPU
  }
  TensorCopy copy = copy_tensor(values);
  perturb(type,
          noise,
          seed_of(copy.bytes.data(), copy.bytes.size(), number),
          tensor.numel(),
          copy.bytes.data());
  overwrite_tensor(values, copy.bytes);
  return true;
}

std::vector<std::int64_t> NoisePolicy::order(std::int64_t samples, std::int64_t microbatch) const {
  return sample_order(samples,
                      random_bits(step_seed_, kOrders + static_cast<std::uint64_t>(microbatch)));
}

}  // namespace ttrace
