// Perturbs what operators return, in noise passes.
//
// Composite operators nest (linear > matmul > mm); a value is perturbed once, by the innermost
// operator that returns its storage. The result is changed in place without telling autograd, so
// that backward sees the values that forward passed on.
//
// Thread-safety: call from any thread, except begin_step; repeatable where operators run in one
// order.
#pragma once

#include "hooks/nudge/perturbation.h"
#include "hooks/nudge/whole_numbers.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ttrace {

class NoisePolicy {
 public:
  // Among `ranks`, values that are equal get equal noise, so that copies on several ranks stay
  // copies, and others get noise of their own, whatever each rank computes in which order.
  NoisePolicy(std::uint64_t seed, int ranks)
      : seed_(seed), among_ranks_(ranks > 1), step_seed_(seed) {}

  // Called on the training thread. Results of other threads stay as they are, except those of
  // backward.
  void begin_step(std::int64_t step);
  // Whether this thread computes for the training step (a data loader does not).
  [[nodiscard]] bool concerns_this_thread() const;
  // Whether a copy into a narrower format counts as a rounding. In the optimizer's phase it does
  // not: there it would move every parameter, while a real difference moves only those near a
  // rounding boundary.
  void set_casts_round(bool casts_round) { casts_round_ = casts_round; }
  [[nodiscard]] bool casts_round() const { return casts_round_; }
  // Leaves what is exact given `reads`. Returns whether the tensor was of a kind that is perturbed.
  bool apply(const at::Tensor& tensor, NoiseClass noise, const WholeReads& reads);
  // The same for what no operator returned (origins.h). Counted apart, so that it changes nothing
  // of what operators' results get.
  bool apply_to_opaque(const at::Tensor& tensor, NoiseClass noise);
  // Order in which a micro-batch's samples are fed.
  [[nodiscard]] std::vector<std::int64_t> order(std::int64_t samples,
                                                std::int64_t microbatch) const;

 private:
  // Takes the next random numbers of those that begin at `first`.
  bool move(const at::Tensor& tensor,
            NoiseClass noise,
            const WholeReads& reads,
            std::uint64_t first,
            std::atomic<std::uint64_t>& ordinal) const;

  // Of the noise of these values, on the host.
  [[nodiscard]] std::uint64_t seed_of(const void* values,
                                      std::size_t bytes,
                                      std::uint64_t number) const;

  const std::uint64_t seed_;
  const bool among_ranks_;
  std::uint64_t step_seed_;
  std::atomic<bool> casts_round_{true};
  std::thread::id training_thread_;
  std::atomic<std::uint64_t> ordinal_{0};  // of the perturbed tensor within the step
  std::atomic<std::uint64_t> opaque_ordinal_{0};
};

}  // namespace ttrace
