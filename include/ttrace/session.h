// Begin here: what a training program calls.
//
//   auto tracer = ttrace::Session::from_environment();        // inert without TTRACE_PASS
//   tracer.describe({...});
//   tracer.attach(*model, layout, ttrace::Annotations::load("gpt.ttrace.yaml"));
//   tracer.load_parameters();                                  // before the optimizer copies
//   masters for (...) {
//     auto step = tracer.step(iteration);
//     for (...) {
//       auto microbatch = step.microbatch(global_index, {.gradient_scale = 1.0 / dp});
//       microbatch.data("tokens", tokens);
//       ... forward ...; microbatch.loss(per_token); ... backward ...
//     }
//     step.gradients_reduced(main_grads);                      // final, before clipping
//     optimizer.step();
//     step.scalar("grad_norm", norm);
//     step.parameters_updated(optimizer_view);
//   }
//
// Everything is inert unless TTRACE_PASS is set: no callback, no thread, no file, and no change of
// a bit either way. Inside callbacks and hooks nothing throws: the first error is kept, tracing
// stops, the step is marked failed; TTRACE_ON_ERROR=raise throws it at the next call here. The
// environment variables are listed in docs/architecture.md.
//
// Thread-safety: one Session per process; its calls come from the training thread. Hooks may run on
// any thread.
#pragma once

#include <ttrace/annotations.h>
#include <ttrace/export.h>
#include <ttrace/layout.h>
#include <ttrace/manifest.h>
#include <ttrace/scope.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

struct TTRACE_API NamedTensor {
  std::string path;   // canonical: "decoder.layers.0.mlp.linear_fc1.weight"
  at::Tensor tensor;  // this rank's part
  // Of gradients that a distributed optimizer has cut anywhere: `tensor` is one-dimensional and
  // holds the elements from this one on of this rank's parameter `path`, in row-major order. Such a
  // parameter must be attached. A rank that holds none of it may leave the entry out.
  std::optional<std::int64_t> flat_first = {};
};

// State of one parameter after the optimizer step; leave undefined what a program does not have.
struct TTRACE_API OptimizerEntry {
  std::string path;
  at::Tensor param;       // what the next forward uses
  at::Tensor master;      // high-precision copy
  at::Tensor exp_avg;     // AdamW first moment
  at::Tensor exp_avg_sq;  // AdamW second moment
  // As in NamedTensor, for master, exp_avg and exp_avg_sq. `param` is all of this rank's part, or
  // the same range where all of it is gathered only later (StepOptions::gathered_later).
  std::optional<std::int64_t> flat_first = {};
};

// What a program says about itself; goes to the manifest.
struct TTRACE_API RunDescription {
  Section model;          // sizes and choices of the model: equal on both sides or no comparison
  Section data;           // data set, seed, batch sizes: equal on both sides or no comparison
  Section versions;       // of the program
  std::string precision;  // "f64", "f32", "bf16": element type of activations; "fp8": quantised
                          // products of bf16 ones; "fp8_f32": of f32 ones
  // Regular expressions of ids that this run cannot give, such as a gradient that holds several
  // micro-batches. What one of them is found in is not recorded, and a comparison lists it as
  // allowed to be missing.
  std::vector<std::string> untraced = {};
};

struct TTRACE_API MicrobatchOptions {
  // Factor from this rank's gradients to the reference's: 1/dp where the loss is averaged over
  // data-parallel ranks only later. Applies to grad_output, grad_input and param_grad.
  double gradient_scale = 1.0;
};

struct TTRACE_API StepOptions {
  // Paths of parameters whose values the last optimizer step changed and that are still being
  // gathered: `param` of these is recorded when parameters_gathered() names them.
  std::vector<std::string> gathered_later = {};
};

class Tracer;            // hooks/: what a live session consists of
struct MicrobatchState;  // hooks/: what gradient hooks keep of a micro-batch

// One micro-batch: forward, loss, backward. Ends on destruction. Several may be open at a time, as
// in a pipeline, which runs other micro-batches between the parts of one.
class TTRACE_API Microbatch {
 public:
  ~Microbatch();
  Microbatch(Microbatch&&) noexcept;
  Microbatch(const Microbatch&) = delete;  // ends exactly once
  Microbatch& operator=(const Microbatch&) = delete;
  Microbatch& operator=(Microbatch&&) = delete;

  // Order in which to feed `samples` samples: the identity except in noise passes, where records of
  // dimensions named `b` are put back. Call once, before data(). tokens = tokens.index_select(0,
  // order).
  [[nodiscard]] std::vector<std::int64_t> permutation(std::int64_t samples);

  // Where several micro-batches are open: what follows, forward or backward, is of this one. A new
  // micro-batch needs no call.
  void resume();

  // Tokens, labels, masks: compared exactly.
  void data(const std::string& name, const at::Tensor& tensor);
  // Loss per token, before any averaging; its gradient is recorded as well.
  void loss(const at::Tensor& per_token);

  // What goes to another pipeline stage, and what has come from one: slot 0 is the output of the
  // module `path`, slot 1 its gradient. Both ends give the same path. A scope takes a received
  // output as what that module produced.
  void sent(const std::string& path, const at::Tensor& tensor, int slot = 0);
  void received(const std::string& path, const at::Tensor& tensor, int slot = 0);

 private:
  friend class Step;
  Microbatch(Tracer* tracer, std::shared_ptr<MicrobatchState> state);
  Tracer* tracer_;                          // null: not traced
  std::shared_ptr<MicrobatchState> state_;  // gradients may arrive after this object is gone
};

// One iteration. On destruction its file is completed and renamed.
class TTRACE_API Step {
 public:
  ~Step();
  Step(Step&&) noexcept;
  Step(const Step&) = delete;  // ends exactly once
  Step& operator=(const Step&) = delete;
  Step& operator=(Step&&) = delete;

  // Whether this iteration is traced.
  [[nodiscard]] bool traced() const { return tracer_ != nullptr; }
  // The program cannot go on with this step: its file is marked failed, with this reason. For
  // callers whose own exceptions C++ does not see.
  void fail(const std::string& reason);

  // `index` is global: i * dp + dp_rank for the i-th local micro-batch.
  [[nodiscard]] Microbatch microbatch(std::int64_t index, const MicrobatchOptions& options = {});

  // Of StepOptions::gathered_later: these are there now, and not used before. The first call
  // counts.
  void parameters_gathered(const std::vector<std::string>& paths);
  // Accumulated, reduced gradients before clipping. A gradient is compared as given.
  void gradients_reduced(const std::vector<NamedTensor>& main_grads);
  void scalar(const std::string& name, double value);
  void parameters_updated(const std::vector<OptimizerEntry>& entries);

 private:
  friend class Session;
  explicit Step(Tracer* tracer);
  Tracer* tracer_;  // null: this iteration is not traced
};

class TTRACE_API Session {
 public:
  // Reads TTRACE_*. Throws UsageError for a variable with a bad value.
  static Session from_environment();
  ~Session();
  Session(Session&&) noexcept;
  Session(const Session&) = delete;  // one per process
  Session& operator=(const Session&) = delete;
  Session& operator=(Session&&) = delete;

  // Whether this process is traced at all.
  [[nodiscard]] bool active() const { return tracer_ != nullptr; }

  // The precision to compute in: TTRACE_PRECISION where it is set, else `own`. `ttrace check` sets
  // it where it runs the reference in a higher precision than the candidate's; a program that does
  // not follow it is refused by attach().
  [[nodiscard]] std::string precision(const std::string& own) const;

  // Before attach(). Throws UsageError for a pattern that is no regular expression.
  void describe(RunDescription description);

  // Takes the model's parameters and modules by their names, which are the canonical paths; a
  // module that is no C++ object is null. Rank 0 writes the manifest. Throws UsageError where a
  // parameter's dtype contradicts TTRACE_PRECISION, its annotation does not fit its shape, or a
  // session is already attached in this process.
  template <class Module>
  void attach(const Module& root, const Layout& layout, const Annotations& annotations) {
    if (!active()) {
      return;
    }
    std::vector<NamedTensor> parameters;
    for (const auto& item : root.named_parameters()) {
      parameters.push_back({item.key(), item.value()});
    }
    std::vector<std::pair<std::string, const torch::nn::Module*>> modules;
    // Without the root itself, which need not be owned by a shared_ptr.
    for (const auto& item : root.named_modules(std::string(), false)) {
      modules.emplace_back(item.key(), item.value().get());
    }
    modules.emplace_back("", static_cast<const torch::nn::Module*>(&root));
    attach(std::move(parameters), std::move(modules), layout, annotations);
  }
  void attach(std::vector<NamedTensor> parameters,
              std::vector<std::pair<std::string, const torch::nn::Module*>> modules,
              const Layout& layout,
              const Annotations& annotations);

  // What is found out of a tensor's placement only while the model runs, in a traced step; see
  // Annotations::derive().
  void derive(const std::string& path, const std::string& field, int slot, const std::string& dims);

  // Consistent start. In the reference pass: stores the parameters as `start/`. In every other
  // pass: overwrites the attached parameters in place by the reference's shards (padding
  // untouched), unless TTRACE_START=own. Returns the paths of those that differed. Call before the
  // optimizer or a data-parallel wrapper copies parameters.
  std::vector<std::string> load_parameters();

  // Iterations outside TTRACE_STEPS yield an inert Step.
  [[nodiscard]] Step step(std::int64_t iteration, const StepOptions& options = {});

 private:
  explicit Session(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;  // null: not traced
};

// Fills every tensor in place by ttrace::fill under its annotated placement, so that programs with
// different layouts start equal. Works without a session.
TTRACE_API void fill_parameters(const std::vector<NamedTensor>& parameters,
                                const Layout& layout,
                                const Annotations& annotations,
                                std::uint64_t seed);

}  // namespace ttrace
