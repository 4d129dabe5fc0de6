// Begin here: what a training program calls.
//
// clang-format off
//   auto session = ttrace::Session::from_environment();  // inert without TTRACE_PASS
//   session.describe({.model = {{"hidden", "32"}}, .precision = session.precision("f32")});
//   session.attach(*model, layout, ttrace::Annotations::load("gpt.ttrace.yaml"));
//   session.load_parameters();  // before the optimizer copies masters
//   for (std::int64_t iteration = 0; iteration < iterations; ++iteration) {
//     auto step = session.step(iteration);
//     for (std::int64_t i = 0; i < microbatches; ++i) {
//       auto microbatch = step.microbatch(i * dp + dp_rank, {.gradient_scale = 1.0 / dp});
//       microbatch.data("tokens", tokens);
//       const at::Tensor per_token = model->forward(tokens);
//       microbatch.loss(per_token);
//       per_token.mean().backward();
//     }
//     step.gradients_reduced(main_gradients);  // final, before clipping
//     optimizer.step();
//     step.scalar("grad_norm", norm);
//     step.parameters_updated(optimizer_entries);
//   }
// clang-format on
//
// The order of calls is: from_environment, describe, attach, load_parameters, then steps. Within a
// step: micro-batches, gradients_reduced, scalar and parameters_updated.
//
// Everything is inert unless TTRACE_PASS is set: there is no callback, no thread, no file, and no
// bit of the training changes. docs/architecture.md lists the environment variables.
//
// Errors: from_environment, describe, attach, load_parameters and step throw UsageError or
// FormatError for errors that the user can correct. Everything else, including scopes, callbacks
// and gradient hooks, never throws while it records: TTrace keeps the first error, logs it, stops
// tracing and marks the step as failed, and training continues untraced. Under
// TTRACE_ON_ERROR=raise the next call of Session::step, Step or Microbatch throws the kept error.
//
// Thread-safety: one Session per process. Call it, its steps and its micro-batches from the thread
// that trains. Gradient hooks and scopes may run on any thread.
#pragma once

#include <ttrace/annotations.h>
#include <ttrace/layout.h>
#include <ttrace/named_tensor.h>
#include <ttrace/run_description.h>
#include <ttrace/scope.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ttrace {

struct MicrobatchOptions {
  // Factor from this rank's gradients to the reference's: 1/dp where the program averages the loss
  // over the data-parallel ranks only later. It applies to grad_output, grad_input and param_grad.
  double gradient_scale = 1.0;
};

struct StepOptions {
  // Paths of the parameters that the last optimizer step changed and that the program is still
  // gathering. TTrace records their `param` when parameters_gathered() names them. It records all
  // other parameters when the step begins. REQUIRES: the paths of attached parameters.
  std::vector<std::string> gathered_later = {};
};

class Tracer;            // private: a live session
struct MicrobatchState;  // private: what gradient hooks keep of a micro-batch

// One micro-batch: forward, loss, backward. It ends on destruction; gradients that arrive later
// still belong to it. Several may be open at a time, as in a pipeline, which runs other
// micro-batches between forward and backward of one. The calls of a micro-batch whose step is not
// traced do nothing. REQUIRES of all calls: the step is alive.
class Microbatch {
 public:
  ~Microbatch();
  Microbatch(Microbatch&&) noexcept;
  Microbatch(const Microbatch&) = delete;  // ends exactly once
  Microbatch& operator=(const Microbatch&) = delete;
  Microbatch& operator=(Microbatch&&) = delete;

  // The order in which the program must feed `samples` samples:
  //   tokens = tokens.index_select(0, at::tensor(microbatch.permutation(tokens.size(0))));
  // It is the identity except in noise passes. There TTrace puts the records back in order, along
  // dimensions that annotations name `b`. REQUIRES: called at most once, before data(). Throws
  // UsageError for a negative number.
  [[nodiscard]] std::vector<std::int64_t> permutation(std::int64_t samples);

  // Where several micro-batches are open: what runs from here on, forward or backward, belongs to
  // this one. A new micro-batch is the current one without this call; data() and loss() also make
  // theirs the current one.
  void resume();

  // Records tokens, labels or masks under `name`. A comparison demands that they are equal.
  void data(const std::string& name, const at::Tensor& tensor);
  // Records the loss per token, before any averaging (any shape), and its gradient. REQUIRES:
  // called before backward; otherwise the gradient is missing and a note in the trace says so.
  void loss(const at::Tensor& per_token);

  // Record what this stage sends to another pipeline stage, and what it has received from one:
  // slot 0 is the output of the module `path`, slot 1 its gradient. Both ends give the same path.
  // A scope that takes a received output treats it as what that module returned.
  void sent(const std::string& path, const at::Tensor& tensor, int slot = 0);
  void received(const std::string& path, const at::Tensor& tensor, int slot = 0);

 private:
  friend class Step;
  Microbatch(Tracer* tracer, std::shared_ptr<MicrobatchState> state);
  Tracer* tracer_;                          // null: not traced
  std::shared_ptr<MicrobatchState> state_;  // gradients may arrive after this object is gone
};

// One iteration. On destruction TTrace completes the step's file and gives it its final name. If an
// exception is leaving the step, the file is marked failed instead. The calls of a step that is not
// traced do nothing. REQUIRES of all calls: the Session is alive.
class Step {
 public:
  ~Step();
  Step(Step&&) noexcept;
  Step(const Step&) = delete;  // ends exactly once
  Step& operator=(const Step&) = delete;
  Step& operator=(Step&&) = delete;

  // Whether this iteration is traced.
  [[nodiscard]] bool traced() const { return tracer_ != nullptr; }
  // Whether this pass overwrites what it records with the candidate's values, as forced passes do.
  [[nodiscard]] bool replaces_values() const;
  // Declares that the program cannot finish this step: TTrace marks its file failed, with this
  // reason. Only callers whose exceptions C++ does not see need it. The first failure counts.
  void fail(const std::string& reason);

  // What training keeps of the steps before, as this step finds it: masters, moments and states of
  // the optimizer (see OptimizerEntry; parameters and copies are ignored), and buffers of modules.
  // It is recorded in the first traced step alone, unless that is iteration 0. REQUIRES: called
  // before the step's first micro-batch.
  void states_before(const std::vector<OptimizerEntry>& entries,
                     const std::vector<NamedTensor>& buffers = {});

  // Begins a micro-batch. `index` is global: i * dp + dp_rank for the i-th local micro-batch.
  // REQUIRES: before gradients_reduced(). What runs after it is no longer part of a micro-batch.
  [[nodiscard]] Microbatch microbatch(std::int64_t index, const MicrobatchOptions& options = {});

  // These parameters of StepOptions::gathered_later are complete now. REQUIRES: called before their
  // first use. The call ignores paths that are not awaited.
  void parameters_gathered(const std::vector<std::string>& paths);
  // The final gradients: accumulated and reduced, not yet clipped. TTrace compares the values as
  // passed in. REQUIRES: called once, after all backward passes and before the optimizer's step.
  // Expected gradients that have not arrived by now are noted as missing.
  void gradients_reduced(const std::vector<NamedTensor>& main_grads);
  // Records a number of the whole step, such as the gradient norm.
  void scalar(const std::string& name, double value);
  // Adds a sentence to the notes of the trace, which every report prints.
  void note(const std::string& sentence);

  // Say where the code of a module stands, and where the program calls it ("train.py:88"), for the
  // report of a divergence. For modules that are C++ objects, scopes record these lines.
  void source(const std::string& path, const std::string& line);
  void called_at(const std::string& path, const std::string& line);
  // The parameters and the optimizer's state after the optimizer's step. REQUIRES: called after
  // gradients_reduced(), with each tensor once. Copies that the program updates later, and what is
  // settled later (the next step's learning rate), may come in a second call.
  void parameters_updated(const std::vector<OptimizerEntry>& entries);
  // Buffers of modules, such as running statistics, as the step leaves them. REQUIRES: called once,
  // when no module runs any more.
  void buffers(const std::vector<NamedTensor>& buffers);

 private:
  friend class Session;
  explicit Step(Tracer* tracer);
  Tracer* tracer_;  // null: this iteration is not traced
};

// The traced program. Keep one for as long as the program trains; its destruction ends the tracing.
class Session {
 public:
  // Reads the TTRACE_* variables. The session is inert if TTRACE_PASS is not set. Throws UsageError
  // that names the variable, for a bad value or a missing one.
  static Session from_environment();
  ~Session();
  Session(Session&&) noexcept;
  Session(const Session&) = delete;  // one per process
  Session& operator=(const Session&) = delete;
  Session& operator=(Session&&) = delete;

  // Whether this process is traced at all.
  [[nodiscard]] bool active() const { return tracer_ != nullptr; }

  // The precision to compute in: TTRACE_PRECISION if it is set, else `own`. `ttrace check` sets it
  // for the passes that run the reference in another precision. A program that does not follow it
  // is refused by attach(). REQUIRES: before attach(). The trace keeps the answer: where two
  // programs got the same one, element types that differ are findings. With an empty `own` only
  // TTRACE_PRECISION is read, and nothing is kept.
  [[nodiscard]] std::string precision(const std::string& own) const;

  // Describes the program. REQUIRES: before attach(); a later call has no effect on the
  // manifest. Throws UsageError for an entry of `untraced` that is no regular expression.
  void describe(RunDescription description);

  // This process simulates all ranks of the run. `others` are the layouts of those after its own.
  // Every record then has the parts of all ranks, which the Python package declares. REQUIRES:
  // before attach().
  void simulate(std::vector<Layout> others);

  // Takes the model's parameters and modules by their names, which are the canonical paths. Rank 0
  // writes the manifest. The session keeps the parameters alive, and knows modules only by address:
  // REQUIRES that the modules outlive the session. Throws UsageError where a parameter's element
  // type contradicts TTRACE_PRECISION, its annotation does not fit its shape, or the process has
  // attached a session before.
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
  // The same for names that differ from those of the C++ modules. A module that is no C++ object is
  // null; it needs a Scope with its ModulePath.
  void attach(std::vector<NamedTensor> parameters,
              std::vector<std::pair<std::string, const torch::nn::Module*>> modules,
              const Layout& layout,
              const Annotations& annotations);

  // Adds to the annotations what the program learns of a tensor's placement only while the model
  // runs; see Annotations::derive(). It has an effect within traced steps only, from the next
  // record on.
  void derive(const std::string& path, const std::string& field, int slot, const std::string& dims);

  // Makes all passes start from the same parameters. The reference pass stores its parameters as
  // `start/`. Every other pass overwrites the attached parameters in place by the reference's
  // shards and leaves padding alone, unless TTRACE_START=own. Returns the paths of those that
  // differed. REQUIRES: after attach(), before the first traced step, and before an optimizer or a
  // data-parallel wrapper copies parameters. Throws UsageError where the order is wrong, the
  // reference has no such parameter, or shapes differ, and FormatError for a trace that it cannot
  // read.
  std::vector<std::string> load_parameters();

  // States what this run does that TTrace does not look at, which every report prints apart from
  // the notes, as one sentence. Within a traced step it counts for that step, else for all later
  // ones; equal sentences count once. `kind` is one of
  //   updates    no optimizer is attached: reduced gradients and updates
  //   state      buffers, or the optimizer's state, that are not recorded
  //   start      start values that were replaced
  //   random     random operators that nobody could follow
  //   parallel   the program runs on one device
  //   later      what came after the traced steps
  //   values     tensors without finite values, or without a bound that says something
  //   samples    rows that nobody could align
  //   gradients  gradients that nobody could record
  // `ttrace check --require KINDS` makes those kinds an error. Throws UsageError for another kind.
  void not_seen(const std::string& kind, const std::string& sentence);

  // Begins an iteration. One that TTRACE_STEPS does not name yields an inert Step. Throws
  // UsageError for a traced iteration before attach(), inside another traced Step, or with a number
  // that was traced before.
  [[nodiscard]] Step step(std::int64_t iteration, const StepOptions& options = {});

 private:
  explicit Session(std::unique_ptr<Tracer> tracer);
  std::unique_ptr<Tracer> tracer_;  // null: not traced
};

// Fills every tensor in place with values that follow from `seed`, its path and the logical index
// of each element, so that programs with different layouts start equal. Needs no session. Throws
// UsageError for a tensor that has no dense memory, or that is a flat shard.
void fill_parameters(const std::vector<NamedTensor>& parameters,
                     const Layout& layout,
                     const Annotations& annotations,
                     std::uint64_t seed);

}  // namespace ttrace
