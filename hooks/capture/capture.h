// Records a traced step: the observer, scopes and gradient hooks report here.
//
// An operator's result belongs to the innermost open scope if that scope is a leaf (the scope
// records it itself), else to the leaf module whose parameters the outermost operator took
// (LeafOutputs). Capture holds the lock, the step and its micro-batches, and passes every event on
// to the parts that own the state: LeafOutputs, Producers, GradientWaits, OpenSums and Replacement.
//
// Thread-safety: every public function may be called from any thread; one lock. No public function
// throws, except those marked: the first error stops the tracing (see Failure).
#pragma once

#include "hooks/base/environment.h"
#include "hooks/base/failure.h"
#include "hooks/base/module_index.h"
#include "hooks/base/parameter_map.h"
#include "hooks/base/scope_stack.h"
#include "hooks/base/step_clock.h"
#include "hooks/base/tensor_access.h"
#include "hooks/capture/dispatched_sums.h"
#include "hooks/capture/gradient_hooks.h"
#include "hooks/capture/gradient_waits.h"
#include "hooks/capture/latest_shapes.h"
#include "hooks/capture/leaf_outputs.h"
#include "hooks/capture/microbatches.h"
#include "hooks/capture/open_sums.h"
#include "hooks/capture/operator_trail.h"
#include "hooks/capture/producers.h"
#include "hooks/capture/random_operator.h"
#include "hooks/capture/recorder.h"
#include "hooks/capture/replacement.h"
#include "hooks/nudge/noise_policy.h"
#include "hooks/nudge/operator_effects.h"
#include "hooks/nudge/origins.h"
#include "hooks/replace/followed_choices.h"
#include "hooks/replace/given_values.h"

#include <ttrace/collective_call.h>
#include <ttrace/named_tensor.h>
#include <ttrace/rows.h>

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ttrace {

class Capture : public std::enable_shared_from_this<Capture> {
 public:
  struct Parts {
    Environment environment;
    Layout layout;
    Annotations annotations;
    std::vector<NamedTensor> parameters;
    ModuleIndex modules;
    std::shared_ptr<const FollowedChoices> followed = {};  // null: the program's own
    std::unique_ptr<const GivenValues> given_values = {};  // null: the program's own
    std::vector<at::Tensor> buffers = {};                  // of modules
    bool moves_codes = false;                              // see capture_quantised.cpp
    std::vector<Layout> simulated = {};  // of the other ranks that this process simulates
  };
  Capture(Parts parts, std::shared_ptr<Failure> failure);

  // Runs `body` under the lock, unobserved by the operator callback; keeps what it throws. Does
  // nothing outside traced steps and after a failure.
  template <class Body>
  void contain(Body&& body) noexcept;

  [[nodiscard]] bool failed() const { return failure_->failed(); }
  [[nodiscard]] bool replaces_values() const { return replacement_.active(); }
  [[nodiscard]] Failure& failure() { return *failure_; }
  [[nodiscard]] const ParameterMap& parameters() const { return parameters_; }
  // Null except in noise passes.
  [[nodiscard]] NoisePolicy* noise() { return noise_ ? &*noise_ : nullptr; }

  // Gradient hooks on parameters.
  void watch_parameters();
  void release_parameters();

  // What this rank began with where that was replaced. It is recorded in the next step.
  void keep_start(std::map<std::string, Snapshot> own) { own_start_ = std::move(own); }

  // `gathered_later`: see StepOptions.
  void begin_step(std::int64_t step,
                  const StepClock& clock,
                  WriterThread* writer,
                  const std::vector<std::string>& gathered_later);
  void end_step();

  [[nodiscard]] MicrobatchPtr open_microbatch(std::int64_t index, double gradient_scale);
  void close_microbatch(const MicrobatchPtr& microbatch);
  void use_microbatch(const MicrobatchPtr& microbatch);
  void data(const MicrobatchPtr& microbatch, const std::string& name, const at::Tensor& tensor);
  void loss(const MicrobatchPtr& microbatch, const at::Tensor& per_token);
  void sent(const MicrobatchPtr& microbatch,
            const std::string& path,
            int slot,
            const at::Tensor& tensor);
  void received(const MicrobatchPtr& microbatch,
                const std::string& path,
                int slot,
                const at::Tensor& tensor);

  void parameters_gathered(const std::vector<std::string>& paths);
  void gradients_reduced(const std::vector<NamedTensor>& main_grads);
  void scalar(const std::string& name, double value);
  void note(const std::string& sentence);
  void not_seen(const NotSeen& fact);
  void code(CodeRole role, const std::string& path, const std::string& text);
  void scope_opened_at(const std::string& path, const std::source_location& where);
  void called_from(const std::string& path, const std::source_location& where);
  void parameters_updated(const std::vector<OptimizerEntry>& entries);
  void buffers(const std::vector<NamedTensor>& buffers);
  void states_before(const std::vector<OptimizerEntry>& entries,
                     const std::vector<NamedTensor>& buffers);

  // Throws UsageError for an unknown module.
  [[nodiscard]] std::string path_of(const torch::nn::Module* module, std::string_view child) const {
    return modules_.path_of(module, child);
  }
  [[nodiscard]] OpenScope scope(std::string path) const;
  // See Annotations::derive().
  void derive(const std::string& path, const std::string& field, int slot, const std::string& dims);
  void scope_event();  // a scope opens or closes: what is pending is complete
  // `rows`: null if annotations say all. Both return the tensor that the program uses from here
  // on: the given one, or a copy that holds the values that replace it.
  // `addends`: see Scope::summed().
  [[nodiscard]] at::Tensor scope_input(
      const std::string& path, int slot, const at::Tensor& tensor, const Rows* rows, int addends);
  [[nodiscard]] at::Tensor scope_output(
      const std::string& path, int slot, const at::Tensor& tensor, const Rows* rows, int addends);
  void scope_summed_gradient(const std::string& parameter, int ranks);
  // See Scope::out_local(). Changes `local` to the tensor to use in its place.
  [[nodiscard]] std::int64_t scope_local(
      Kind kind, const std::string& path, int slot, at::Tensor& local, bool has_gradient);
  [[nodiscard]] at::Tensor local_gradient(std::int64_t expected, const at::Tensor& gradient);
  void scope_state(Spot spot, const at::Tensor& tensor);  // no value of the graph: has no gradient

  // Returns the choices that the program uses: its own, or those of the run that it follows.
  [[nodiscard]] at::Tensor scope_routing(const std::string& path,
                                         const at::Tensor& choices,
                                         const at::Tensor& margins);

  // Records random numbers. Returns those that the program uses: its own, or those of the run that
  // it follows.
  [[nodiscard]] at::Tensor scope_draw(const std::string& path, int slot, const at::Tensor& draw);
  // A random operator is done, and no other one within it has drawn. Overwrites what it returned in
  // a pass that follows another run.
  void drew(const RandomOperator& random,
            std::string_view name,
            const std::vector<c10::IValue>& outputs);

  // One of c10d's operators is about to start.
  void communication_begins(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);
  // The id that the output will have; nothing if it is not traced.
  [[nodiscard]] std::optional<TensorId> collective_begins(const CollectiveCall& call,
                                                          const at::Tensor& input);
  void collective_ends(const TensorId& id, const at::Tensor& output);

  // In noise passes, what operators do to values without noise (origins.h). Called under the lock,
  // within contain(). `moved`: noise was put on the tensor.
  [[nodiscard]] OpaqueReads opaque_reads(c10::ArrayRef<const c10::IValue> inputs,
                                         const OperatorEffects& effects) const;
  // Whether an operator allocated the tensor, and none wrote to it so far.
  [[nodiscard]] bool is_blank(const at::Tensor& tensor) const;
  void result_made(const at::Tensor& tensor,
                   bool moved,
                   const OperatorEffects& effects,
                   const OpaqueReads& reads);
  void argument_written(const at::Tensor& tensor,
                        bool moved,
                        const OperatorEffects& effects,
                        const OpaqueReads& reads);
  // Whether this thread runs a module, or backward.
  [[nodiscard]] static bool in_model();
  // The program has this tensor from outside, such as a module's buffer.
  void given(const at::Tensor& tensor);

  // A cast into FP8 is done.
  void quantised(const at::Tensor& codes);

  void inspect(c10::ArrayRef<c10::IValue> inputs, OperatorInputs& result);
  void operator_finished(std::string_view name,  // "aten::addmm"
                         const OperatorInputs& inputs,
                         const std::vector<c10::IValue>& outputs);

  // Whether this pass lists operators inside of modules.
  [[nodiscard]] bool zooms() const { return environment_.zoom.has_value(); }
  // Requires: zooms(). `parent`: of the operator or wrapper around it, or null.
  void operator_begins(const at::RecordFunction& function,
                       bool is_operator,
                       const TrailPlace* parent,
                       TrailPlace& place);
  // Requires: an operator with place.call.
  void operator_ends(const at::RecordFunction& function, const TrailPlace& place);

 private:
  // The micro-batch that the code on this thread belongs to, and whether it runs backward.
  [[nodiscard]] MicrobatchPtr current_microbatch() const;
  [[nodiscard]] Moment now() const;
  [[nodiscard]] bool in_microbatch() const { return !reduced_ && current_microbatch() != nullptr; }

  // A record of a micro-batch that has no place in the graph.
  void record_in(const MicrobatchPtr& microbatch, const Spot& spot, const at::Tensor& tensor);
  void record_whole_step(Kind kind,
                         const std::string& path,
                         const at::Tensor& tensor,
                         const std::optional<std::int64_t>& flat_first = {});
  void record_placed(const TensorId& id,
                     const at::Tensor& tensor,
                     const Recorder::Options& options);
  void record_updated(const OptimizerEntry& entry);
  // `name`: of what is kept of the entry's parameter.
  void record_state(Kind kind,
                    const OptimizerEntry& entry,
                    const std::string& name,
                    const at::Tensor& tensor);
  // A scope's input or output. Returns the tensor that the program uses from here on.
  [[nodiscard]] at::Tensor record_value(const Spot& spot,
                                        const at::Tensor& tensor,
                                        Kind gradient_kind,
                                        const Rows* rows);
  // A value, or the rows of it that the program has placed. `own`: its values, if they are here.
  void record_parts(const TensorId& id,
                    const std::vector<RowPart>& parts,
                    const at::Tensor& tensor,
                    std::optional<TensorCopy> own,
                    bool needs_no_gradient);
  [[nodiscard]] Origin origin_of(const at::Tensor& tensor) const;
  // Whether values of it come from code that was not seen, and have no noise.
  [[nodiscard]] bool is_opaque(const at::Tensor& tensor) const;
  [[nodiscard]] NoiseClass noise_class_of(const std::string& module) const;
  [[nodiscard]] at::Tensor with_noise(const at::Tensor& tensor, NoiseClass noise);
  // In noise passes, a copy with noise of what an operator that was not seen has made; the tensor
  // itself otherwise.
  [[nodiscard]] at::Tensor value_with_noise(const Spot& spot, const at::Tensor& tensor);
  // The same of a gradient; undefined for the gradient itself.
  [[nodiscard]] at::Tensor gradient_with_noise(const at::Tensor& gradient);
  // Like record_value(), for a tensor that only wraps `local`; null if no gradient is expected.
  [[nodiscard]] at::Tensor record_local(const Spot& spot,
                                        const at::Tensor& local,
                                        const GradientSlotPtr& gradient);
  // An activation that a module was given or returned; see LatestShapes.
  void saw(const TensorId& id, const at::Tensor& tensor, bool has_rows);
  // The bytes that take the place of a draw; nothing if the program keeps it.
  [[nodiscard]] std::optional<std::vector<std::byte>> followed_draw(
      const TensorId& id, const at::Tensor& draw, const Recorder::Options& options) const;
  // Where a draw of this shape lies on a rank, as far as the activations before it tell.
  [[nodiscard]] Recorder::Placed place_draw(const std::vector<std::int64_t>& shape,
                                            std::size_t rank) const;
  void drew_data(const RandomOperator& random,
                 std::string_view name,
                 const std::vector<c10::IValue>& outputs);
  // Overwrites a draw in a pass that follows another run, and records it.
  void follow_and_record(const TensorId& id,
                         const RandomOperator& random,
                         const at::Tensor& draw,
                         const std::vector<c10::IValue>& outputs,
                         const Recorder::Options& options);
  void draw_unseen(const TensorId& id, std::string_view name);
  void look_for_unseen_draws();
  void look_for_unseen_scales();
  void follow_in_place(std::string_view name, const at::Tensor& output);
  // Whether LeafOutputs was offered the output of an operator with these inputs.
  [[nodiscard]] bool offer_output(const OperatorInputs& inputs, const at::Tensor& output);

  // Registers a gradient hook; null if no gradient will come.
  [[nodiscard]] GradientSlotPtr watch(const at::Tensor& tensor,
                                      const MicrobatchPtr& microbatch,
                                      bool inferred);
  void hook(const at::Tensor& tensor, const GradientSlotPtr& slot, bool fallback);
  // A stage whose output comes out of a checkpointed part recomputes before any other gradient
  // arrives.
  void bind_backward(const at::Tensor& tensor, const MicrobatchPtr& microbatch);
  // All three return the gradient that backward uses from here on, undefined for the given one.
  [[nodiscard]] at::Tensor gradient_arrived(const GradientSlotPtr& slot,
                                            const at::Tensor& gradient,
                                            bool fallback);
  [[nodiscard]] at::Tensor fallback_arrived(GradientSlot& slot, const at::Tensor& gradient);
  [[nodiscard]] at::Tensor parameter_gradient_arrived(int index, const at::Tensor& gradient);
  // The tensor that replaces the gradient; nothing if the program keeps it.
  [[nodiscard]] std::optional<std::vector<std::byte>> replaced(const GradientSlot& slot,
                                                               const TensorCopy& own);
  void settle_gradients();
  // States what a step with a backward gave nobody to compare.
  void state_unseen_updates();

  // Returns nothing if no record can hold it: integers and codes, outside of micro-batches.
  [[nodiscard]] std::optional<OpenSum> open_sum(const DispatchedSum& sum) const;
  void announce_sum(const CollectiveCall& call, const at::Tensor& input);
  // Records the call itself and its input. Returns the id that its output will have.
  [[nodiscard]] TensorId record_collective(const CollectiveCall& call, const at::Tensor& input);
  // The open sums of this direction that went into the record of `tensor` get its id. If there are
  // none, the sums count that the program knows of: `known`, the number of ranks of each.
  void settle_sums(const TensorId& id,
                   const std::string& module,
                   const at::Tensor& tensor,
                   const std::vector<int>& known);
  // The record of `tensor` is a sum over ranks that nobody saw, as follows from its placement.
  void record_known_sum(const TensorId& id, const at::Tensor& tensor, int ranks);

  // See capture_zoom.cpp.
  [[nodiscard]] const std::string* zoomed_module() const;
  [[nodiscard]] bool is_zoomed_moment() const;
  void list_call(const at::RecordFunction& function, bool is_operator, TrailPlace& place);
  void look_at(const at::RecordFunction& function, TrailPlace& place);
  void record_communicated(const at::Tensor& tensor);
  void record_operator(std::size_t position, int slot, const at::Tensor& tensor);
  void record_trail();

  const Environment environment_;
  const std::shared_ptr<Failure> failure_;
  const ModuleIndex modules_;
  ParameterMap parameters_;
  std::optional<NoisePolicy> noise_;
  std::optional<NoisePolicy> noise_of_codes_;              // see capture_quantised.cpp
  const std::shared_ptr<const FollowedChoices> followed_;  // null: this pass follows nobody
  GradientHooks parameter_hooks_;

  std::mutex mutex_;  // guards what follows
  Origins origins_;   // in noise passes
  Recorder recorder_;
  Replacement replacement_;
  OpenSums sums_;
  std::optional<std::pair<TensorIdentity, std::vector<OpenSum>>>
      settled_;  // of the last output or gradient
  Producers producers_;
  GradientWaits gradients_;
  GradientHooks activation_hooks_;
  LeafOutputs leaves_;
  LatestShapes latest_;
  std::uint64_t draws_ = 0;                    // of this step, wherever they were made
  TensorId draw_;                              // the latest one of a module
  std::optional<GeneratorStates> generators_;  // when the step began
  Microbatches microbatches_;
  OperatorTrail trail_;  // in zoom passes
  std::int64_t step_ = 0;
  bool reduced_ = false;        // gradients_reduced() was called: the optimizer's phase
  bool updated_ = false;        // parameters_updated() was called
  bool has_gradients_ = false;  // backward ran within a micro-batch
  bool has_codes_ = false;      // a cast into FP8 ran
  bool has_scales_ = false;     // the scale of one was recorded
  std::map<std::string, std::int64_t> collectives_;  // begun in this step, by group
  std::map<std::string, int> summed_gradients_;  // ranks, by parameter: Scope::summed_gradient()
  std::set<std::string> being_gathered_;         // parameters that are not recorded yet
  std::map<std::string, Snapshot> own_start_;    // by parameter; until it is recorded
};

// Whether this thread runs autograd's backward.
[[nodiscard]] bool in_backward();
// The run of the forward in which this thread is: within backward, a forward runs again.
[[nodiscard]] ForwardRun forward_run();

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
