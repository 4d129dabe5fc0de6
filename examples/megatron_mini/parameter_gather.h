// Hands updated parameters to all ranks where each has updated its part of the buckets (ZeRO-1).
//
// With overlap the buckets are on their way while the next forward begins: await() is called before
// a module's forward and waits for the buckets of its parameters.
//
// Thread-safety: none; one training thread.
#pragma once

#include "flat_buckets.h"
#include "model_parameter.h"

#include <functional>
#include <string>
#include <vector>

namespace megatron_mini {

class ParameterGather {
 public:
  ParameterGather(std::vector<ModelParameter> parameters, std::vector<FlatBucket> buckets);
  virtual ~ParameterGather() = default;

  // Sends this rank's parts of all buckets off. All ranks. Requires: nothing is on its way.
  void start();
  // Waits for the parameters of the module with this path. Returns the paths of those that nobody
  // has waited for since start().
  std::vector<std::string> await(const std::string& module);
  // Waits for what is left, likewise.
  std::vector<std::string> finish();

  // The paths of all parameters.
  [[nodiscard]] std::vector<std::string> paths() const;

 protected:
  // Waits for the buckets of the module's parameters.
  virtual void wait_for(const std::string& module);
  // Copies a bucket that has arrived to its parameters.
  virtual void hand_out(std::size_t bucket, const at::Tensor& gathered);

 private:
  void finish(std::size_t bucket);

  std::vector<ModelParameter> parameters_;
  std::vector<FlatBucket> buckets_;
  std::vector<std::function<at::Tensor()>> under_way_;  // by bucket; empty: here
  std::vector<bool> awaited_;                           // by parameter
};

}  // namespace megatron_mini
