// The training loop: micro-batches, gradient reduction, clipping, AdamW, and the calls of TTrace.
//
// Loss and gradients: a context-parallel rank has the losses of its own tokens, so that what it
// adds to a gradient, or to the loss, is an addend; data-parallel ranks have other micro-batches.
// As in Megatron-LM:
//   mean       a rank goes backward from dp * cp times its share of the mean; gradients are divided
//              by dp * cp and then summed over these ranks. The run description has a
//              gradient_scale of 1 / (dp * cp).
//   per_token  a rank goes backward from the sum of its token losses; gradients are summed over
//              these ranks and then divided by the number of tokens that count in the whole step.
// A pipeline stage runs its part of several micro-batches in the order of its schedule; the last
// one has the loss.
//
// Thread-safety: none; one training thread.
#pragma once

#include "batch.h"
#include "config.h"
#include "cross_entropy.h"
#include "gpt_model.h"
#include "main_gradients.h"
#include "mixed_precision_optimizer.h"
#include "options.h"
#include "parallel.h"
#include "parameter_gather.h"
#include "schedule.h"
#include "text_data.h"
#include "transfers.h"

#include <ttrace/annotations.h>
#include <ttrace/session.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace megatron_mini {

// What a run is made from, read before anything is communicated.
struct Plan {
  Options options;
  Config config;
  TextData text;
  ttrace::Annotations annotations;
  std::shared_ptr<const Parts> parts;
};

// Throws UsageError, or ttrace::Error for the annotations.
[[nodiscard]] Plan read_plan(const Options& options, std::shared_ptr<const Parts> parts);

struct StepResult {
  double loss = 0.0;                    // as Loss defines it
  double grad_norm = 0.0;               // before clipping
  std::optional<std::uint64_t> digest;  // XXH3-64 over loss, main gradients and updated parameters
                                        // of all ranks; where asked for
};

class Trainer {
 public:
  // Builds the model with its start values and attaches the tracer; communicates nothing. Throws
  // UsageError or ttrace::Error where model, layout, annotations and stored start do not fit
  // together.
  Trainer(Plan plan, const Parallel& parallel);
  virtual ~Trainer() = default;
  Trainer(const Trainer&) = delete;  // owns the session
  Trainer& operator=(const Trainer&) = delete;

  // Copies the start values of the first rank of dp and cp to the others, those of the tied weight
  // to the last stage, and takes masters from them. All ranks, once, before the first step.
  void start();
  // One iteration, from 0. All ranks.
  StepResult train_step(std::int64_t iteration);
  // The configuration's, or what `ttrace check` asks for.
  [[nodiscard]] Precision precision() const { return plan_.config.precision; }

 protected:
  // What this rank adds: to the step's loss, which kPerToken divides by the tokens at the end.
  struct LossAddend {
    double loss = 0.0;
    double tokens = 0.0;  // that count
  };

  // What a chunk's forward leaves for its backward; undefined before and after.
  struct Passed {
    at::Tensor input;   // from the chunk before, if there is one
    at::Tensor output;  // the loss to go backward from where no chunk follows
  };
  // A micro-batch between its first forward and its last backward on this rank.
  struct Running {
    ttrace::Microbatch traced;
    SampleKey key;  // of its first sample; the micro-batch's number is global
    Batch batch;
    std::vector<Passed> chunks;
  };

  // All tasks of this rank's schedule.
  virtual LossAddend train_microbatches(ttrace::Step& step, std::int64_t iteration);
  // A whole micro-batch -> what this context-parallel rank has of it.
  [[nodiscard]] virtual Batch part_of(const Batch& whole) const;
  // Goes from the logits to `to_minimise`.
  virtual LossAddend take_loss(const at::Tensor& logits, Running& running, at::Tensor& to_minimise);
  [[nodiscard]] VocabularyPart vocabulary_part(const at::Tensor& logits) const;
  // Logits [s, b, padded/tp] -> each token's loss [s, b].
  [[nodiscard]] virtual at::Tensor loss_per_token(const at::Tensor& logits,
                                                  const Batch& batch) const;
  // Adds the gradients that a chunk's backward left to those of the step.
  virtual void collect_gradients(const Task& task, const Running& running);
  // The loss of the step and the number of tokens that count in it, over all ranks.
  [[nodiscard]] virtual LossAddend sum_over_ranks(const LossAddend& mine) const;
  // What the sum of the losses is divided by.
  [[nodiscard]] double loss_divisor(double tokens) const;
  virtual void update_parameters(ttrace::Step& step);
  // Ends a step for delayed FP8 scales.
  virtual void roll_histories();

  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Parallel& parallel() const { return parallel_; }
  [[nodiscard]] const GptModel& model() const { return *model_; }
  [[nodiscard]] MainGradients& gradients() { return *gradients_; }
  // Micro-batches of a data-parallel rank in a step.
  [[nodiscard]] std::int64_t local_microbatches() const {
    return plan_.config.data.micro_batches / parallel_.dp.size;
  }

 private:
  void describe();
  [[nodiscard]] ttrace::Step begin_step(std::int64_t iteration);
  // `number`: on this data-parallel rank.
  [[nodiscard]] Running begin_microbatch(ttrace::Step& step,
                                         std::int64_t iteration,
                                         std::int64_t number);
  LossAddend run_forward(const Task& task, Running& running, Transfers& transfers);
  void run_backward(const Task& task, Running& running, Transfers& transfers);
  LossAddend reduce_loss(const at::Tensor& per_token,
                         const at::Tensor& loss_mask,
                         at::Tensor& to_minimise);
  [[nodiscard]] Transfers make_transfers() const;
  // Records the routers' losses and moves their biases.
  void finish_routing(ttrace::Step& step);

  Plan plan_;
  Parallel parallel_;
  std::shared_ptr<BeforeForward> before_forward_;
  std::shared_ptr<GptModel> model_;
  ttrace::Session session_;
  std::shared_ptr<MainGradients> gradients_;            // from start() on
  std::shared_ptr<MixedPrecisionOptimizer> optimizer_;  // from start() on
  std::shared_ptr<ParameterGather> gather_;             // from start() on, with zero1
  bool gather_due_ = false;  // other ranks have newer parts of parameters
};

}  // namespace megatron_mini
