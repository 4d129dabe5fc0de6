// The training loop: micro-batches, gradient reduction, clipping, AdamW, and what TTrace is told.
//
// Loss and gradients: a context-parallel rank has the losses of its own tokens, so that what it adds
// to a gradient, or to the loss, is an addend; data-parallel ranks have other micro-batches. As in
// Megatron-LM a rank multiplies its loss by dp * cp before backward, and gradients are divided by
// dp * cp and then summed over these ranks. TTrace is told a gradient_scale of 1 / (dp * cp).
//
// Thread-safety: none; one training thread.
#pragma once

#include "config.h"
#include "gpt_model.h"
#include "main_gradients.h"
#include "mixed_precision_optimizer.h"
#include "options.h"
#include "parallel.h"
#include "text_data.h"

#include <ttrace/annotations.h>
#include <ttrace/session.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace megatron_mini {

// What a run is made from, read before anything is communicated.
struct Plan {
  Options options;
  Config config;
  TextData text;
  ttrace::Annotations annotations;
};

// Throws ttrace::UsageError or ttrace::FormatError.
[[nodiscard]] Plan read_plan(const Options& options);

struct StepResult {
  double loss = 0.0;                    // mean over all micro-batches
  double grad_norm = 0.0;               // before clipping
  std::optional<std::uint64_t> digest;  // XXH3-64 over loss, main gradients and updated parameters
                                        // of all ranks; where asked for
};

class Trainer {
 public:
  // Builds the model with its start values and attaches the tracer; communicates nothing. Throws
  // ttrace::Error where model, layout, annotations and stored start do not fit together.
  Trainer(Plan plan, const Parallel& parallel);

  // Copies the start values of the first rank of dp and cp to the others and takes masters from
  // them. All ranks, once, before the first step.
  void start();
  // One iteration, from 0. All ranks.
  StepResult train_step(std::int64_t iteration);

 private:
  void describe();
  double train_microbatch(ttrace::Step& step, std::int64_t iteration, std::int64_t index);

  Plan plan_;
  Parallel parallel_;
  Bugs bugs_;
  std::shared_ptr<GptModel> model_;
  ttrace::Session session_;
  std::optional<MainGradients> gradients_;            // from start() on
  std::optional<MixedPrecisionOptimizer> optimizer_;  // from start() on
};

}  // namespace megatron_mini
