// A program that uses c10d's NCCL: it shows that ttrace::torch_cuda compiles and links. It runs
// where the torch of the build has CUDA.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

// All ranks of a group of one.
double sum_over_ranks(double value) {
  c10d::ProcessGroupNCCL group(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  std::vector<at::Tensor> tensors{at::full({1}, value, at::TensorOptions(at::kCUDA))};
  group.startCoalescing();
  static_cast<void>(group.allreduce(tensors));
  group.endCoalescing()->wait();
  return tensors.front().item<double>();
}

}  // namespace

int main() {
  try {
    std::printf("the sum of 1 over one rank is %g\n", sum_over_ranks(1.0));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_link: %s\n", error.what());
    return 1;
  }
  return 0;
}
