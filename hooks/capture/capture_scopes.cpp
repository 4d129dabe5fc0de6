// The part of Capture that scopes report to.
#include "hooks/base/take_snapshot.h"
#include "hooks/capture/capture.h"
#include "hooks/capture/record_tensor.h"
#include "trace/merge/routing.h"

#include <ttrace/error.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

namespace ttrace {
namespace {

// Relative to the working folder, if the file lies below it.
std::string text_of(const std::source_location& where) {
  const std::string file = where.file_name();
  const std::string relative =
      std::filesystem::path(file).lexically_relative(std::filesystem::current_path()).string();
  const bool is_below = !relative.empty() && !relative.starts_with("..");
  return (is_below ? relative : file) + ":" + std::to_string(where.line());
}

}  // namespace

OpenScope Capture::scope(std::string path) const {
  const bool is_leaf = modules_.is_leaf(path);
  return {.path = std::move(path), .leaf = is_leaf};
}

void Capture::scope_opened_at(const std::string& path, const std::source_location& where) {
  contain([&] {
    if (in_microbatch() && !recorder_.knows_code(CodeRole::kSource, path)) {
      recorder_.code(CodeRole::kSource, path, text_of(where));
    }
  });
}

void Capture::called_from(const std::string& path, const std::source_location& where) {
  code(CodeRole::kCall, path, text_of(where));
}

void Capture::derive(const std::string& path,
                     const std::string& field,
                     int slot,
                     const std::string& dims) {
  contain([&] { recorder_.derive(path, field, slot, dims); });
}

void Capture::scope_event() {
  contain([&] { leaves_.commit(); });
}

at::Tensor Capture::scope_input(
    const std::string& path, int slot, const at::Tensor& tensor, const Rows* rows, int addends) {
  at::Tensor result = tensor;
  contain([&] {
    leaves_.commit();
    if (!in_microbatch()) {
      return;
    }
    const Spot spot{Kind::kInput, path, slot, forward_run(), addends};
    if (!producers_.join(spot, tensor, rows, current_microbatch())) {
      result = record_value(spot, tensor, Kind::kGradInput, rows);
      return;
    }
    if (const auto source = producers_.first_name_of(tensor, current_microbatch())) {
      saw(*source, tensor, rows != nullptr);
    }
    if (const GradientSlotPtr gradient = producers_.gradient_at(tensor);
        gradient != nullptr && addends > 1) {
      gradient->sums.push_back(addends);
    }
  });
  return result;
}

at::Tensor Capture::scope_output(
    const std::string& path, int slot, const at::Tensor& tensor, const Rows* rows, int addends) {
  at::Tensor result = tensor;
  contain([&] {
    leaves_.commit();
    if (in_microbatch()) {
      result = record_value(
          {Kind::kOutput, path, slot, forward_run(), addends}, tensor, Kind::kGradOutput, rows);
    }
  });
  return result;
}

void Capture::saw(const TensorId& id, const at::Tensor& tensor, bool has_rows) {
  latest_.saw({id, shape_of(tensor), current_microbatch(), has_rows});
}

at::Tensor Capture::record_value(const Spot& spot,
                                 const at::Tensor& tensor,
                                 Kind gradient_kind,
                                 const Rows* rows) {
  const MicrobatchPtr microbatch = current_microbatch();
  const bool readable = unreadable(tensor).empty();
  std::vector<TensorId> ids;
  std::vector<RowPart> parts;
  if (rows == nullptr || !readable) {
    ids.push_back(recorder_.next_id(spot, microbatch.get()));
  } else {
    parts = split_rows(*rows, shape_of(tensor), microbatch);
    for (RowPart& part : parts) {
      part.value = recorder_.next_id(spot, part.microbatch.get());
      ids.push_back(part.value);
    }
  }
  const TensorId id = ids.front();
  saw(id, tensor, rows != nullptr);
  const at::Tensor value = readable ? value_with_noise(spot, tensor) : tensor;
  at::Tensor result = value;
  std::optional<TensorCopy> own;
  if (replacement_.active() && readable) {
    own = snapshot(tensor).take();
    result =
        replaced_tensor(tensor,
                        parts.empty() ? replacement_.of(id, *own, {.microbatch = microbatch.get()})
                                      : replacement_.of(parts, spot.kind, *own));
  }
  // The gradient of an input is the sum over all its consumers, this one included. So is that of an
  // output that its own module uses, too.
  const bool is_given = spot.kind == Kind::kInput || replacement_.active();
  const GradientSlotPtr slot = watch(is_given ? tensor : result, microbatch, false);
  gradients_.expect(slot, id, gradient_kind);
  if (slot != nullptr && replacement_.active() && spot.kind == Kind::kOutput && readable) {
    if (std::optional<TensorId> first = producers_.first_name_of(tensor, microbatch)) {
      slot->of_first_name = *std::move(first);
      slot->of_first_name.kind = gradient_kind;
    }
  }
  const std::vector<int> known = spot.addends > 1 ? std::vector{spot.addends} : std::vector<int>();
  if (spot.kind == Kind::kInput && slot != nullptr) {
    slot->sums = known;
  }
  if (spot.kind == Kind::kOutput) {
    if (readable) {
      producers_.remember({std::move(ids), TensorIdentity(result), microbatch, slot});
    }
    settle_sums(id, spot.path, tensor, known);
  }
  const bool needs_no_gradient = slot == nullptr && at::GradMode::is_enabled();
  record_parts(id, parts, value, std::move(own), needs_no_gradient);
  if (slot != nullptr) {
    slot->rows = std::move(parts);
  }
  return result;
}

void Capture::record_parts(const TensorId& id,
                           const std::vector<RowPart>& parts,
                           const at::Tensor& tensor,
                           std::optional<TensorCopy> own,
                           bool needs_no_gradient) {
  const MicrobatchPtr microbatch = current_microbatch();
  if (!parts.empty()) {
    if (recorder_.wants(parts, id.kind)) {
      recorder_.record_rows(parts,
                            id.kind,
                            own ? *std::move(own) : values_of(tensor, recorder_).take(),
                            Turn(),
                            needs_no_gradient);
    }
  } else if (own) {
    recorder_.record(id,
                     *std::move(own),
                     {.microbatch = microbatch.get(), .needs_no_gradient = needs_no_gradient});
  } else {
    record_tensor(recorder_,
                  id,
                  tensor,
                  {.microbatch = microbatch.get(), .needs_no_gradient = needs_no_gradient});
  }
}

// --- tensors that only wrap this rank's part -----------------------------------------------------

std::int64_t Capture::scope_local(
    Kind kind, const std::string& path, int slot, at::Tensor& local, bool has_gradient) {
  std::int64_t expected = kNoLocalGradient;
  contain([&] {
    leaves_.commit();
    const Spot spot{kind, path, slot, forward_run()};
    if (!in_microbatch()) {
      return;
    }
    if (kind == Kind::kInput && producers_.join(spot, local, nullptr, current_microbatch())) {
      if (const auto source = producers_.first_name_of(local, current_microbatch())) {
        saw(*source, local, false);
      }
      return;
    }
    GradientSlotPtr gradient;
    if (has_gradient) {
      gradient = std::make_shared<GradientSlot>();
      gradient->microbatch = current_microbatch();
    }
    local = record_local(spot, local, gradient);
    if (gradient != nullptr) {
      expected = gradients_.add_local(gradient);
    }
  });
  return expected;
}

at::Tensor Capture::record_local(const Spot& spot,
                                 const at::Tensor& local,
                                 const GradientSlotPtr& gradient) {
  const MicrobatchPtr microbatch = current_microbatch();
  const TensorId id = recorder_.next_id(spot, microbatch.get());
  saw(id, local, false);
  const bool is_output = spot.kind == Kind::kOutput;
  const bool readable = unreadable(local).empty();
  at::Tensor result = local;
  std::optional<TensorCopy> own;
  if (replacement_.active() && readable) {
    own = snapshot(local).take();
    result = replaced_tensor(local, replacement_.of(id, *own, {.microbatch = microbatch.get()}));
  }
  gradients_.expect(gradient, id, spot.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput);
  if (is_output) {
    settle_sums(id, spot.path, local, {});
    if (readable) {
      producers_.remember({{id}, TensorIdentity(result), microbatch, gradient});
    }
  }
  record_parts(id, {}, local, std::move(own), gradient == nullptr && at::GradMode::is_enabled());
  return result;
}

at::Tensor Capture::local_gradient(std::int64_t expected, const at::Tensor& gradient) {
  at::Tensor result;
  contain([&] {
    if (const GradientSlotPtr slot = gradients_.local(expected)) {
      result = gradient_arrived(slot, gradient, false);
    }
  });
  return result.defined() ? result : gradient;
}

// --- state of a module ---------------------------------------------------------------------------

at::Tensor Capture::scope_routing(const std::string& path,
                                  const at::Tensor& choices,
                                  const at::Tensor& margins) {
  at::Tensor result = choices;
  contain([&] {
    leaves_.commit();
    if (!in_microbatch()) {
      return;
    }
    TTRACE_CHECK(choices.scalar_type() == at::kLong && choices.dim() == margins.dim() + 1 &&
                     choices.sizes().slice(0, margins.sizes().size()) == margins.sizes(),
                 UsageError,
                 "Scope::routing of ",
                 path,
                 " got choices that are not an int64 tensor with one more dimension than the "
                 "margins; pass int64 [..., k] and [...]");
    const MicrobatchPtr microbatch = current_microbatch();
    const TensorId id =
        recorder_.next_id({Kind::kRouting, path, kChoicesSlot, forward_run()}, microbatch.get());
    record_tensor(recorder_, id, choices, {microbatch.get()});
    record_in(microbatch, {Kind::kRouting, path, kMarginsSlot, forward_run()}, margins);
    const bool follows = followed_ != nullptr && !environment_.leads_up(step_);
    if (follows && unreadable(choices).empty()) {
      const auto placement = recorder_.place(id, shape_of(choices), {microbatch.get()});
      TTRACE_CHECK(placement,
                   UsageError,
                   "the samples of ",
                   to_string(id),
                   " were permuted, and their order cannot be restored; annotate its `routing` "
                   "with a dimension b, for example \"s b k\"");
      result = followed_->experts(id, *placement, choices);
    }
  });
  return result;
}

void Capture::scope_state(Spot spot, const at::Tensor& tensor) {
  contain([&] {
    leaves_.commit();
    if (!in_microbatch()) {
      return;
    }
    has_scales_ = has_scales_ || spot.kind == Kind::kScale;
    // Backward itself runs with gradients off; with gradients on, a forward runs again.
    if (!in_backward() || at::GradMode::is_enabled()) {
      spot.run = forward_run();
    }
    record_in(current_microbatch(), spot, tensor);
  });
}

}  // namespace ttrace
