// The outputs of leaf modules, which no scope reports: they are found by the parameters that their
// operators take.
//
// A leaf module may use its parameters in several operators (a 3-D C++ nn::Linear multiplies, then
// adds its bias in place): its latest result is pending until something else happens,
// and only the last one is its output.
//
// Thread-safety: one thread at a time; Capture holds its lock around every call.
#pragma once

#include "hooks/base/module_index.h"
#include "hooks/base/parameter_map.h"
#include "hooks/base/tensor_access.h"
#include "hooks/capture/gradient_waits.h"
#include "hooks/capture/leaf_call.h"
#include "hooks/capture/microbatches.h"
#include "hooks/capture/producers.h"
#include "hooks/capture/recorder.h"
#include "hooks/capture/replacement.h"

#include <ttrace/tensor_id.h>

#include <ATen/core/ivalue.h>

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ttrace {

// The inputs of an outermost operator.
struct OperatorInputs {
  c10::SmallVector<const c10::StorageImpl*, 8> storages;  // alive until the operator is finished
  ParameterIndices parameters;       // that inputs are, or were computed from alone
  std::optional<TensorId> producer;  // of the first input that a module has returned
  bool only_parameters = false;      // no other tensor among the inputs

  // A leaf module's operators take its parameters and something else.
  [[nodiscard]] bool may_be_a_module() const { return !parameters.empty() && !only_parameters; }
};

// Of which micro-batch something runs, and in which run of its forward.
struct Moment {
  MicrobatchPtr microbatch;  // null: none is open
  ForwardRun run{};
};

class LeafOutputs {
 public:
  // All of these must outlive this object.
  struct Parts {
    const ModuleIndex& modules;
    const ParameterMap& parameters;
    Recorder& recorder;
    Producers& producers;
    GradientWaits& gradients;
    Replacement& replacement;
  };
  explicit LeafOutputs(Parts parts) : parts_(parts) {}

  // Fills `result` but for its producer. `find_parameters` false: storages only.
  void inspect(c10::ArrayRef<c10::IValue> inputs,
               bool find_parameters,
               OperatorInputs& result) const;
  // The leaf module that these parameters belong to.
  [[nodiscard]] std::optional<std::string> owner_of(const ParameterIndices& parameters) const;
  // `outputs` were computed from parameters alone, such as a transposed weight.
  void remember_derived(const ParameterIndices& parameters,
                        const std::vector<c10::IValue>& outputs);

  // An operator is about to run. What is pending is complete unless it continues that call.
  void operator_begins(const OperatorInputs& inputs, const Moment& now);
  // An operator of `module` has returned `output`. `watch` makes the slot of its gradient.
  void offer(const std::string& module,
             const OperatorInputs& inputs,
             const at::Tensor& output,
             const Moment& now,
             const std::function<GradientSlotPtr()>& watch);
  // The slot of the pending result if that lies where `tensor` lies now; nothing otherwise.
  [[nodiscard]] std::optional<GradientSlotPtr> gradient_at(const at::Tensor& tensor) const;
  // Records the pending result, which is complete now.
  void commit();

  // Forgets derived tensors whose memory is gone.
  void forget_expired();
  void clear();

 private:
  // The latest result of a leaf module that may not have finished its call.
  struct Pending {
    std::string module;
    ParameterIndices used;  // in this call
    at::Tensor result;      // where values are replaced, which are written to it; else undefined
    TensorIdentity identity;
    std::optional<Snapshot> values;  // nothing if nobody needs them
    Moment now;
    GradientSlotPtr gradient;          // null if none is expected
    std::optional<TensorId> producer;  // of what its first operator took
  };
  struct Derived {
    WeakStorage storage;
    ParameterIndices parameters;
  };
  [[nodiscard]] bool continues(const std::string& module,
                               const OperatorInputs& inputs,
                               const Moment& now) const;

  Parts parts_;
  std::optional<Pending> pending_;
  std::unordered_map<const void*, Derived> derived_;  // by storage
};

}  // namespace ttrace
