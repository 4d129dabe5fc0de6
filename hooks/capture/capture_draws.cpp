// The part of Capture that follows random numbers.
#include "hooks/base/take_snapshot.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"

#include <ttrace/error.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

constexpr std::array<std::int64_t, 1> kNobodyRead = {0};  // shape of such a draw, see draws.h

}  // namespace

std::optional<std::vector<std::byte>> Capture::followed_draw(
    const TensorId& id, const at::Tensor& draw, const Recorder::Options& options) const {
  if (followed_ == nullptr || environment_.leads_up(step_)) {
    return std::nullopt;
  }
  const auto placement = recorder_.place(id, shape_of(draw), options);
  TTRACE_CHECK(placement,
               UsageError,
               "the samples of ",
               to_string(id),
               " were permuted, and their order cannot be restored; annotate the module's tensors "
               "with a dimension b, for example \"s b h\"");
  return followed_->draw(id, *placement, snapshot(draw).take());
}

at::Tensor Capture::scope_draw(const std::string& path, int slot, const at::Tensor& draw) {
  at::Tensor result = draw;
  contain([&] {
    leaves_.commit();
    if (!in_microbatch()) {
      return;
    }
    const MicrobatchPtr microbatch = current_microbatch();
    const TensorId id =
        recorder_.next_id({Kind::kDraw, path, slot, forward_run()}, microbatch.get());
    if (unreadable(draw).empty()) {
      result = replaced_tensor(draw, followed_draw(id, draw, {microbatch.get()}));
    }
    record_tensor(recorder_, id, result, {microbatch.get()});
  });
  return result;
}

Recorder::Placed Capture::place_draw(const std::vector<std::int64_t>& shape,
                                     std::size_t rank) const {
  const MicrobatchPtr microbatch = current_microbatch();
  const std::vector<const LatestShape*> latest = latest_.of(microbatch);
  for (const LatestShape* const activation : latest) {
    if (activation->shape == shape && !activation->has_rows) {
      if (auto found = recorder_.place_like(activation->id, shape, shape, microbatch.get(), rank)) {
        return *std::move(found);
      }
    }
  }
  for (const LatestShape* const activation : latest) {
    if (!activation->has_rows && recorder_.cuts_only_samples()) {
      auto found =
          recorder_.place_like(activation->id, activation->shape, shape, microbatch.get(), rank);
      if (found) {
        return *std::move(found);
      }
    }
  }
  const auto samples = static_cast<std::int64_t>(microbatch->order.size());
  TTRACE_CHECK(samples == 0 || std::ranges::find(shape, samples) == shape.end(),
               UsageError,
               "random numbers of the shape ",
               shape_text(shape),
               " follow the samples, which were permuted, and no activation before them says along "
               "which dimension; annotate the module's tensors with a dimension b");
  return {.placement = whole(shape), .is_guess = true};
}

void Capture::drew(const RandomOperator& random,
                   std::string_view name,
                   const std::vector<c10::IValue>& outputs) {
  contain([&] {
    ++draws_;
    const OpenScope* const scope = innermost_scope();
    if (!in_microbatch() || scope == nullptr) {
      drew_data(random, name, outputs);
      return;
    }
    const MicrobatchPtr microbatch = current_microbatch();
    // Of ranks that this process simulates, one after another draws.
    const auto ranks = static_cast<int>(recorder_.ranks());
    const int rank = scope->draws % ranks;
    const int slot = scope->draws++ / ranks;
    // Backward itself runs with gradients off; with gradients on, a forward runs again.
    const bool is_of_backward = in_backward() && !at::GradMode::is_enabled();
    const ForwardRun run = is_of_backward ? ForwardRun() : forward_run();
    if (rank == 0) {
      draw_ = recorder_.next_id({Kind::kDraw, scope->path, slot, run}, microbatch.get());
    }
    const TensorId id = draw_;
    const at::Tensor draw = random.draw_among(outputs);
    if (!draw.defined() || !unreadable(draw).empty()) {
      if (rank == 0 && (!draw.defined() || unreadable(draw) != kInGraph)) {
        draw_unseen(id, name);
      }
      return;
    }
    const auto number = static_cast<std::size_t>(rank);
    const Recorder::Placed placed = place_draw(shape_of(draw), number);
    follow_and_record(id,
                      random,
                      draw,
                      outputs,
                      {.microbatch = microbatch.get(), .placed = &placed, .rank = number});
  });
}

// A single number is no data: it seeds a generator, or decides for all samples.
void Capture::drew_data(const RandomOperator& random,
                        std::string_view name,
                        const std::vector<c10::IValue>& outputs) {
  const at::Tensor draw = random.draw_among(outputs);
  if (!draw.defined() || !unreadable(draw).empty() || draw.dim() == 0) {
    return;
  }
  if (recorder_.ranks() > 1) {
    recorder_.not_seen({NotSeenKind::kRandom,
                        std::string(name) +
                            " drew data for simulated ranks within the step, outside of modules: "
                            "the reference does not follow it"});
    return;
  }
  const std::string path = "step." + std::string(name.substr(name.rfind(':') + 1));
  const Recorder::Placed placed = recorder_.place_by_rank(shape_of(draw));
  follow_and_record(
      recorder_.next_id({Kind::kDraw, path}, nullptr), random, draw, outputs, {.placed = &placed});
}

void Capture::follow_and_record(const TensorId& id,
                                const RandomOperator& random,
                                const at::Tensor& draw,
                                const std::vector<c10::IValue>& outputs,
                                const Recorder::Options& options) {
  if (const auto bytes = followed_draw(id, draw, options)) {
    overwrite_tensor(draw.variable_data(), *bytes);
    random.apply(draw, outputs);
  }
  record_tensor(recorder_, id, random.is_mask() ? draw.to(at::kBool) : draw, options);
}

void Capture::look_for_unseen_draws() {
  if (draws_ == 0 && generators_ && generators_->have_moved()) {
    recorder_.not_seen(
        {NotSeenKind::kRandom,
         "the state of the random numbers changed within the step, but no operator that TTrace "
         "sees "
         "drew any; where one side draws numbers that the other one is not seen to draw, nothing "
         "that follows is judged"});
  }
}

void Capture::draw_unseen(const TensorId& id, std::string_view name) {
  const Recorder::Placed nothing{.placement = whole(kNobodyRead)};
  record_tensor(recorder_,
                id,
                at::zeros(kNobodyRead, at::kBool),
                {.microbatch = current_microbatch().get(), .placed = &nothing});
  recorder_.not_seen(
      {NotSeenKind::kRandom,
       std::string(name) + " in " + id.path +
           " keeps the random numbers that it draws, so nobody can follow them, and what depends "
           "on "
           "them is not judged; use an implementation of its own for attention and dropout, or set "
           "the probability of dropout to 0"});
}

}  // namespace ttrace
