// What a traced step records: the observer, scopes and gradient hooks report here.
//
// An operator's result belongs to the innermost open scope if that scope is a leaf (the scope
// records it itself), else to the leaf module whose parameters the outermost operator took. A leaf
// module may use its parameters in several operators (a 3-D C++ nn::Linear multiplies, then adds
// its bias in place): the copy of its latest result is pending until something else happens, and
// only the last one is its output.
//
// Thread-safety: every public function may be called from any thread; one lock. No public function
// throws, except those marked: the first error stops the tracing (see Failure).
#pragma once

#include "hooks/base/environment.h"
#include "hooks/base/failure.h"
#include "hooks/base/microbatch_state.h"
#include "hooks/base/module_index.h"
#include "hooks/base/parameter_map.h"
#include "hooks/base/row_parts.h"
#include "hooks/base/scope_stack.h"
#include "hooks/capture/dispatched_sums.h"
#include "hooks/capture/recorder.h"
#include "hooks/nudge/noise_policy.h"
#include "hooks/replace/forced_routing.h"
#include "hooks/replace/given_values.h"
#include "trace/file/rounded_sum.h"

#include <ttrace/collective_call.h>
#include <ttrace/session.h>

#include <ATen/core/ivalue.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ttrace {

// What an outermost operator was given.
struct OperatorInputs {
  c10::SmallVector<const c10::StorageImpl*, 8> storages;  // alive until the operator is finished
  ParameterIndices parameters;       // that inputs are, or were computed from alone
  std::optional<TensorId> producer;  // of the first input that a module has returned
  bool only_parameters = false;      // no other tensor among the inputs
};

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  struct Parts {
    Environment environment;
    Layout layout;
    Annotations annotations;
    std::vector<NamedTensor> parameters;
    ModuleIndex modules;
    std::optional<ForcedRouting> forced_routing = {};
    std::unique_ptr<const GivenValues> given_values = {};  // null: the program's own
  };
  Capture(Parts parts, std::shared_ptr<Failure> failure);

  // Runs `body` under the lock, unobserved by the operator callback; keeps what it throws. Does
  // nothing outside traced steps and after a failure.
  template <class Body>
  void contain(Body&& body) noexcept;

  [[nodiscard]] bool failed() const { return failure_->failed(); }
  [[nodiscard]] Failure& failure() { return *failure_; }
  [[nodiscard]] const ParameterMap& parameters() const { return parameters_; }
  // Null except in noise passes.
  [[nodiscard]] NoisePolicy* noise() { return noise_ ? &*noise_ : nullptr; }

  // Gradient hooks on parameters: before any other hook that the program adds later.
  void watch_parameters();
  void release_parameters();

  void begin_step(std::int64_t step, WriterThread* writer, const StepOptions& options);
  void end_step();

  [[nodiscard]] std::shared_ptr<MicrobatchState> open_microbatch(std::int64_t index,
                                                                 double gradient_scale);
  void close_microbatch(const std::shared_ptr<MicrobatchState>& microbatch);
  void use_microbatch(const std::shared_ptr<MicrobatchState>& microbatch);
  void data(const std::shared_ptr<MicrobatchState>& microbatch,
            const std::string& name,
            const at::Tensor& tensor);
  void loss(const std::shared_ptr<MicrobatchState>& microbatch, const at::Tensor& per_token);
  void sent(const std::shared_ptr<MicrobatchState>& microbatch,
            const std::string& path,
            int slot,
            const at::Tensor& tensor);
  void received(const std::shared_ptr<MicrobatchState>& microbatch,
                const std::string& path,
                int slot,
                const at::Tensor& tensor);

  void parameters_gathered(const std::vector<std::string>& paths);
  void gradients_reduced(const std::vector<NamedTensor>& main_grads);
  void scalar(const std::string& name, double value);
  void parameters_updated(const std::vector<OptimizerEntry>& entries);

  // Throws UsageError for an unknown module.
  [[nodiscard]] std::string path_of(const torch::nn::Module* module, std::string_view child) const {
    return modules_.path_of(module, child);
  }
  [[nodiscard]] OpenScope scope(std::string path) const;
  // See Annotations::derive().
  void derive(const std::string& path, const std::string& field, int slot, const std::string& dims);
  void scope_event();  // a scope opens or closes: what is pending is complete
  // `rows`: null where annotations say all. Return what to go on with: the tensor itself, or a copy
  // that holds the values that are given in its place.
  [[nodiscard]] at::Tensor scope_input(const std::string& path,
                                       int slot,
                                       const at::Tensor& tensor,
                                       const Rows* rows);
  [[nodiscard]] at::Tensor scope_output(const std::string& path,
                                        int slot,
                                        const at::Tensor& tensor,
                                        const Rows* rows);
  // See Scope::out_local().
  [[nodiscard]] std::int64_t scope_local(
      Kind kind, const std::string& path, int slot, const at::Tensor& local, bool has_gradient);
  void local_gradient(std::int64_t expected, const at::Tensor& gradient);
  void scope_state(Spot spot, const at::Tensor& tensor);  // no value of the graph: has no gradient

  // The choices to use.
  [[nodiscard]] at::Tensor scope_routing(const std::string& path,
                                         const at::Tensor& choices,
                                         const at::Tensor& margins);

  // One of c10d's operators is about to start.
  void communication_begins(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);
  // The id that the output will have; nothing where it is not traced.
  [[nodiscard]] std::optional<TensorId> collective_begins(const CollectiveCall& call,
                                                          const at::Tensor& input);
  void collective_ends(const TensorId& id, const at::Tensor& output);

  void inspect(c10::ArrayRef<c10::IValue> inputs, OperatorInputs& result);
  void operator_finished(std::string_view name,  // "aten::addmm"
                         const OperatorInputs& inputs,
                         const std::vector<c10::IValue>& outputs);

 private:
  using Microbatch = std::shared_ptr<MicrobatchState>;

  // One gradient that is expected.
  struct GradientSlot {
    TensorId id;     // of the gradient
    TensorId value;  // of the tensor
    Microbatch microbatch;
    bool inferred = false;
    bool discarded = false;  // belongs to an operator that was not the module's last
    bool recorded = false;
    bool transparent = true;    // in-place operators since then handed the gradient on unchanged
    std::vector<RowPart> rows;  // where the program has placed them, else empty
    std::optional<TensorCopy> fallback;  // what the in-place operator that followed was given
    std::uint64_t fallback_order = 0;
  };
  using Slot = std::shared_ptr<GradientSlot>;

  // The latest result of a leaf module that may not have finished its call.
  struct Pending {
    std::string module;
    ParameterIndices used;  // in this call
    at::Tensor result;      // where values are given, which are written to it; else undefined
    TensorIdentity identity;
    TensorCopy copy;
    Microbatch microbatch;
    bool recompute = false;
    Slot gradient;                     // null where none is expected
    std::optional<TensorId> producer;  // of what its first operator took
  };

  struct Produced {
    std::vector<TensorId> parts;  // one, or of every micro-batch whose rows it has
    TensorIdentity identity;
    Microbatch microbatch;
    Slot gradient;
  };

  struct Derived {
    WeakStorage storage;
    ParameterIndices parameters;
  };

  [[nodiscard]] Microbatch current_microbatch() const;
  [[nodiscard]] bool in_microbatch() const { return !reduced_ && current_microbatch() != nullptr; }

  [[nodiscard]] std::optional<TensorId> producer_among(c10::ArrayRef<c10::IValue> inputs) const;
  // The leaf module that these parameters belong to.
  [[nodiscard]] std::optional<std::string> owner_of(const ParameterIndices& parameters) const;
  void remember_derived(const ParameterIndices& parameters,
                        const std::vector<c10::IValue>& outputs);
  void follow_in_place(std::string_view name, const at::Tensor& output);
  void offer_output(const std::string& module,
                    const OperatorInputs& inputs,
                    const at::Tensor& output);
  // Whether this operator continues the pending call of `module`.
  [[nodiscard]] bool continues(const std::string& module,
                               const OperatorInputs& inputs,
                               const Microbatch& microbatch,
                               bool recompute) const;
  void commit_pending();

  // Registers a gradient hook; null where no gradient will come.
  [[nodiscard]] Slot watch(const at::Tensor& tensor, const Microbatch& microbatch, bool inferred);
  void hook(const at::Tensor& tensor, const Slot& slot, bool fallback);
  void expect(const Slot& slot, const TensorId& value, Kind gradient_kind);
  void record_edges(const Spot& spot,
                    const std::vector<std::int64_t>& shape,
                    const Rows* rows,
                    const Produced& source);
  // What goes into a module comes from another one: true, and recorded as an edge.
  [[nodiscard]] bool is_produced(const Spot& spot, const at::Tensor& tensor, const Rows* rows);
  // Returns what to go on with.
  [[nodiscard]] at::Tensor record_value(const Spot& spot,
                                        const at::Tensor& tensor,
                                        Kind gradient_kind,
                                        const Rows* rows);
  // A tensor whose rows the program has placed; `kind` is the value's or its gradient's.
  void record_rows(const std::vector<RowPart>& parts,
                   Kind kind,
                   const TensorCopy& copy,
                   std::uint64_t order);
  void remember_produced(std::vector<TensorId> parts,
                         TensorIdentity identity,
                         const Microbatch& microbatch,
                         Slot gradient);
  // The module whose result `tensor` still is, in the current micro-batch; of several the last one
  // to return it. Null where there is none.
  [[nodiscard]] const Produced* producer_of(const at::Tensor& tensor) const;
  void record_whole_step(Kind kind,
                         const std::string& path,
                         const at::Tensor& tensor,
                         const std::optional<std::int64_t>& flat_first = {});
  // Both return what backward goes on with, undefined for the given gradient.
  [[nodiscard]] at::Tensor gradient_arrived(const Slot& slot,
                                            const at::Tensor& gradient,
                                            bool fallback);
  [[nodiscard]] at::Tensor parameter_gradient_arrived(int index, const at::Tensor& gradient);

  // What takes the place of the tensor whose own values are in `copy`; nothing where none are
  // given.
  [[nodiscard]] std::optional<std::vector<std::byte>> given(const TensorId& id,
                                                            const TensorCopy& copy,
                                                            const Recorder::Options& options);
  // The same for a tensor of which `parts` are recorded; `kind` is the value's or its gradient's.
  [[nodiscard]] std::optional<std::vector<std::byte>> given(const std::vector<RowPart>& parts,
                                                            Kind kind,
                                                            const TensorCopy& copy);
  // The tensor itself, or a copy that holds the given values.
  [[nodiscard]] at::Tensor forced_copy(const TensorId& id,
                                       const std::vector<RowPart>& parts,
                                       Kind kind,
                                       const at::Tensor& tensor);
  // Undefined: `gradient` stays.
  [[nodiscard]] at::Tensor forced_gradient(const GradientSlot& slot,
                                           const TensorCopy& own,
                                           const at::Tensor& gradient);
  void count_unforced(const TensorId& id);

  // A sum over ranks that has begun and that no record holds yet.
  struct OpenSum {
    bool backward = false;
    std::string module;         // of the innermost scope; empty in backward and outside of scopes
    std::int64_t elements = 0;  // of this rank's part of the result
    RoundedSum sum;             // without id
    bool announced = false;     // by the program; no operator was seen to start it yet

    // Whether the program has announced by this what now starts as `other`.
    [[nodiscard]] bool announces(const OpenSum& other) const;
  };
  // Nothing where no record can hold it: integers and codes, outside of micro-batches.
  [[nodiscard]] std::optional<OpenSum> open_sum(const DispatchedSum& sum) const;
  void sum_begins(const DispatchedSum& sum);
  void announce_sum(const CollectiveCall& call, const at::Tensor& input);
  // Gives the open sums of this direction that went into a record of `elements` elements its id.
  void settle_sums(const TensorId& id, const std::string& module, std::int64_t elements);
  void settle_gradients();

  const Environment environment_;
  const std::shared_ptr<Failure> failure_;
  ModuleIndex modules_;
  ParameterMap parameters_;
  std::optional<NoisePolicy> noise_;
  const std::optional<ForcedRouting> forced_routing_;
  const std::unique_ptr<const GivenValues> given_values_;
  std::vector<std::pair<at::Tensor, unsigned>> parameter_hooks_;

  std::mutex mutex_;  // guards what follows
  Recorder recorder_;
  std::int64_t step_ = 0;
  bool reduced_ = false;  // gradients_reduced() was called: the optimizer's phase
  std::vector<Microbatch> open_;
  std::unordered_map<int, Microbatch> by_graph_task_;  // which micro-batch a backward belongs to
  std::optional<Pending> pending_;
  std::unordered_map<const void*, std::vector<Produced>> produced_;  // by storage
  std::unordered_map<const void*, Derived> derived_;                 // by storage
  std::vector<Slot> slots_;
  std::vector<Slot> local_slots_;                    // by what scope_local() has returned
  std::set<TensorId> gradients_;                     // recorded
  std::map<std::string, std::int64_t> collectives_;  // begun in this step, by group
  std::set<std::string> being_gathered_;             // parameters that are not recorded yet
  std::vector<OpenSum> sums_;
  std::uint64_t unforced_ = 0;  // values that the candidate does not have, in a forced pass
};

// Whether this thread runs autograd's backward.
[[nodiscard]] bool in_backward();

// The capture of the step that is being traced, or null. One atomic load.
[[nodiscard]] Capture* active_capture() noexcept;
void set_active_capture(Capture* capture) noexcept;

// --- implementation --------------------------------------------------------------------------

template <class Body>
void Capture::contain(Body&& body) noexcept {
  if (failed()) {
    return;
  }
  try {
    const Unobserved unobserved;
    const std::lock_guard lock(mutex_);
    if (recorder_.recording()) {
      body();
    }
  } catch (...) {
    failure_->keep(std::current_exception());
  }
}

}  // namespace ttrace
