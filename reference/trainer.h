// Training steps on one device, traced by the lines that any program would add.
//
// Thread-safety: use from one thread.
#pragma once

#include "adamw.h"
#include "config.h"
#include "data.h"
#include "main_gradients.h"

#include <ttrace/session.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ttrace::reference {

class Gpt;
struct Routing;

struct StepResult {
  double loss = 0.0;       // loss.h
  double grad_norm = 0.0;  // before clipping
  std::string digest;      // of loss, main gradients before clipping and updated parameters
};

class Trainer {
 public:
  // Builds and fills the model; a session described by TTRACE_* variables may then replace its
  // parameters. `annotations` is a file of dims (gpt.ttrace.yaml). Everything is computed on
  // `device`.
  Trainer(const Config& config, const std::string& annotations, c10::Device device = at::kCPU);
  ~Trainer();
  Trainer(const Trainer&) = delete;  // a session is attached to its model
  Trainer& operator=(const Trainer&) = delete;

  // Micro-batches 0 .. M-1 forward and backward, then one update.
  StepResult step(std::int64_t iteration);

  [[nodiscard]] const AdamW& optimizer() const { return *optimizer_; }

 private:
  // What a micro-batch adds to its step.
  struct Addend {
    double loss = 0.0;
    double tokens = 0.0;  // that count
    double balance_loss = 0.0;
    double z_loss = 0.0;
    std::vector<at::Tensor> loads{};  // by layer, [E] i64: tokens sent to each expert
  };
  static void add(Addend& sum, const Addend& addend);

  void start_session(const std::string& annotations);
  // What the routers' losses add to what a micro-batch goes backward from.
  at::Tensor router_share(const Routing& routing, const at::Tensor& counts) const;
  Addend run_micro_batch(std::int64_t iteration, std::int64_t index, Step& step);
  // Records the routers' losses and moves the experts' biases.
  void finish_routing(const Addend& total, Step& step);
  // State that the step has changed: the optimizer's, and the experts' biases.
  [[nodiscard]] std::vector<OptimizerEntry> updated() const;

  Session session_;
  Config config_;
  c10::Device device_;
  ByteCorpus corpus_;
  std::shared_ptr<Gpt> model_;
  std::unique_ptr<MainGradients> gradients_;
  std::unique_ptr<AdamW> optimizer_;
};

}  // namespace ttrace::reference
